from __future__ import annotations

from collections.abc import Iterator

import pytest
from pretended import NAME, Answers, pretended, registered

from fedrelay.system import devices


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration may name the made-up device, where there is one."""
    registered()
    monkeypatch.setattr(devices, "KINDS", (*devices.KINDS, NAME))


@pytest.fixture
def there(known: None) -> Iterator[Answers]:
    """A made-up device."""
    with pretended() as answers:
        yield answers
