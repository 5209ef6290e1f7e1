"""These tests pull the plug of file systems of their own, which takes Linux and root."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["test_power.py"]
