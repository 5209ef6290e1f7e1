"""Whether a call goes on: an interrupt may have ended it before it could say so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def is_running(frame: FrameType | None) -> bool:
    """Tell whether *frame* is on the stack of this thread."""
    caller: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None and caller is not None:
        if caller is frame:
            return True
        caller = caller.f_back
    return False
