"""What a test needs of the machine: a contributor may do without it, CI may not."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import pytest

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals, terminals or counters")


def lacking(what: str) -> NoReturn:
    """Skip the test with the reason; where CI is set, which promises that nothing is skipped, let it fail."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def needed(module: str) -> ModuleType:
    """A module of a package in the extra dev."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        lacking(f"{module} is not installed; the extra dev has it")
