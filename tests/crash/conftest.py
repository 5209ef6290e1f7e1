"""These tests need flock, fork and signals; what Windows does is told by nobody yet."""

from __future__ import annotations

import sys

collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []
