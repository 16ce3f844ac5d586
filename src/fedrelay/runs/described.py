"""A run that was made in Python, as far as its objects can be told in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from fedrelay.system.sequences import BLOCK, Integers
from fedrelay.tasks import Task
from fedrelay.types import LATER

if TYPE_CHECKING:
    from fedrelay.runs.record import Recorder


def described_run(recorder: Recorder) -> dict[str, Any]:
    """A run that was made in Python, as far as its objects can be told in a file."""
    engine = recorder.engine
    return {
        "rounds": recorder.rounds,
        "seed": engine.seed,
        "data": {
            "clients": len(engine.sizes),
            "examples": Integers.of(engine.sizes).total,
            "sizes": digest_of(engine.sizes),
        },
        "model": plain(engine.task.model),
        **described_task(engine.task),
        "algorithm": {"name": recorder.name, "is": plain(recorder.algorithm)},
        "evaluate": plain(recorder.evaluate),
        # A processor is not named, as it was not before there were others.
        "engine": {"name": type(engine).__name__}
        | ({} if engine.device.type == "cpu" else {"device": engine.device.type}),
    }


def described_task(task: Task) -> dict[str, Any]:
    """Loss, metrics and headline, if they are other than the model's own."""
    usual = Task(task.model, task.shape, task.classes, target="classes")
    if (usual.loss, usual.metrics, usual.judged_by) == (task.loss, task.metrics, task.judged_by):
        return {}
    headline = plain(task.headline)
    return {"task": {"loss": plain(task.loss), "metrics": plain(task.metrics), "headline": headline}}


def digest_of(sizes: Sequence[int]) -> str:
    """A hash of the sizes as a tuple prints, piece by piece: all of it may be too long."""
    digest = hashlib.sha256(b"(")
    for start in range(0, len(sizes), BLOCK):
        words = ", ".join(map(str, sizes[start : start + BLOCK]))
        digest.update(f"{', ' if start else ''}{words}".encode())
    digest.update(b",)" if len(sizes) == 1 else b")")
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """A configured object as plain data: dataclasses by their fields, functions by their names. A field that is new
    since runs began to be described is left out while it has its default."""
    if is_dataclass(value) and not isinstance(value, type):
        told = [
            item for item in fields(value) if not (LATER in item.metadata and getattr(value, item.name) == item.default)
        ]
        said = {item.name: plain(getattr(value, item.name)) for item in told}
        return {"is": type(value).__name__} | {key: part for key, part in said.items() if part is not None}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__name__)
