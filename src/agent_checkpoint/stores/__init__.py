"""Where runs live. Stores act: what bytes mean is decided in ``_core``."""
