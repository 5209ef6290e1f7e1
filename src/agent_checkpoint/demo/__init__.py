"""`python -m agent_checkpoint.demo`: an agent is killed twice and pays one call twice."""
