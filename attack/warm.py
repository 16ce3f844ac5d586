"""What a process does once, so that its children need not: import everything, and run something of each kind."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def prepare(folder: Path) -> None:
    """Keep everything that is written in this folder, and use one thread."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "FEDRELAY_DATA": str(folder / "data"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "NO_COLOR": "1",
    }
    tempfile.tempdir = None
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "data")]


def warm(folder: Path) -> None:
    """A few commands in this process: most of what they need is imported when it is first asked for."""
    import torch
    from cases import COMPARE, GROUPS, run_of

    from fedrelay.cli import main

    torch.set_num_threads(1)
    once = folder / "warm"
    for case in (COMPARE, GROUPS, run_of("fedavg", "stacked"), run_of("fedgsp")):
        arguments = case.write(once)
        with chdir(once), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            code = main([*arguments[:3], case.name.replace(" ", "-"), *case.options])
        if code:
            raise RuntimeError(f"{case.name} does not even run undisturbed: {said.getvalue()[-500:]}")
