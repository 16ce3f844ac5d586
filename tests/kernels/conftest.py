from __future__ import annotations

from collections.abc import Iterator

import pytest
from needs import lacking

from fedrelay.kernels import native


@pytest.fixture(scope="module")
def compiled() -> None:
    """The compiled part of fedrelay is here."""
    if not native.available():
        lacking(f"the compiled part is not there: {native.found()}")


@pytest.fixture(params=[16, 8, 4])
def lanes(request: pytest.FixtureRequest) -> Iterator[int]:
    """As on processors with registers of so many numbers at most."""
    count = native.found().library.front_lanes(request.param)
    if count != request.param:
        lacking(f"this processor has registers of {count} numbers")
    yield count
    native.found().library.front_lanes(16)
