"""A tiny run three times: in one go, stopped and resumed, and by worker processes. The bits must be the same."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedrelay import config
from fedrelay.studies.doctor.finding import Finding

TABLES: dict[str, Any] = {
    "rounds": 4,
    "checkpoint": 1,
    "data": {"name": "synthetic", "examples": 80, "test_examples": 20, "shape": [6], "classes": 4, "clients": 8},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 5, "lr": 0.1},
    "algorithm": {"name": "fedseq", "max_clients": 2, "fraction": 1.0},
    "evaluate": {"every": 2},
    "engine": {"name": "inline"},
}


def self_test() -> list[Finding]:
    """The findings of the topic: it takes seconds, most of them until the worker processes have begun."""
    began = time.perf_counter()
    try:
        with TemporaryDirectory(prefix="fedrelay-doctor-") as folder:
            expected = in_one_go(Path(folder) / "inline", "inline")
            found = {
                "resumed": resumed(Path(folder) / "resumed"),
                "pool of two processes": in_one_go(Path(folder) / "pool", "pool"),
            }
    except Exception as error:  # whatever is broken here is what we want to know
        text = f"failed: {type(error).__name__}: {error}"
        return [Finding("self-test", "a tiny run", text, "fedrelay cannot run here: see above", wrong=True)]
    took = f"{time.perf_counter() - began:.1f} s"
    unlike = [name for name, bits in found.items() if bits != expected]
    return [
        Finding("self-test", "a tiny run", f"inline: {expected[:12]}, {took} for all"),
        *(
            Finding("self-test", name, f"another result: {bits[:12]}", REMEDY, wrong=True)
            if name in unlike
            else Finding("self-test", name, "the same bits")
            for name, bits in found.items()
        ),
    ]


REMEDY = "runs will not repeat to the bit here: reinstall torch and NumPy, and unset what is set under bits"


def in_one_go(folder: Path, engine: str) -> str:
    """The hash of the model that comes out."""
    workers = {"workers": 2} if engine == "pool" else {}
    recorder = config.build({**TABLES, "engine": {"name": engine, **workers}}).record(folder)
    for _ in recorder.run():
        pass
    return recorder.summary().params_sha256


def resumed(folder: Path) -> str:
    """The same when it stops half-way and goes on."""
    with closing(config.build(TABLES).record(folder).run()) as logs:  # type: ignore[type-var]
        for log in logs:
            if log.round == TABLES["rounds"] // 2:
                break
    recorder = config.build(TABLES).record(folder, resume=True)
    for _ in recorder.run():
        pass
    return recorder.summary().params_sha256
