"""What a plan computes for the next round while the present one trains."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def beside(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Start computing this in a thread of its own, which ends with it."""
    thread = ThreadPoolExecutor(1, "beside")
    future = thread.submit(call, *args, **kwargs)
    thread.shutdown(wait=False)
    return future
