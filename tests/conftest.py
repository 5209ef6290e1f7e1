"""How far the sweeps go: CHECKPOINT_TESTS is "quick" (the default) or "full"."""

from __future__ import annotations

import os

from hypothesis import settings

# A deadline would measure how busy the machine is.
settings.register_profile("quick", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("full", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("CHECKPOINT_TESTS", "quick"))
