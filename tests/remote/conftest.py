"""What tests of real clients share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import machines
import pytest
from needs import posix  # noqa: F401


@pytest.fixture
def site(tmp_path: Path) -> Iterator[machines.Site]:
    made = machines.Site(tmp_path)
    try:
        yield made
    finally:
        made.close()
