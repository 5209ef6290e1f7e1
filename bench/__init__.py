"""The figures this project promises, measured. ``python bench/run.py`` is the way in."""
