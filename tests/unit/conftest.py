"""What several of these tests set, and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def digit_limit() -> Iterator[Callable[[int], None]]:
    """Set how many digits of an integer this process reads with ``digit_limit(number)``."""
    if not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this Python has no limit to set")
    before = sys.get_int_max_str_digits()
    yield sys.set_int_max_str_digits
    sys.set_int_max_str_digits(before)
