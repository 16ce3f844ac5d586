"""What many tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from filelock import FileLock

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no mistake of the code
hypothesis.settings.load_profile("patient")

# In the background and under nohup SIGINT is ignored, and so it would be in every process that a test starts to
# interrupt it: Python listens to Ctrl-C only where its parent has not said otherwise.
signal.signal(signal.SIGINT, signal.default_int_handler)

ONE_PROCESS = "tests/engines/test_ray.py"
"""Tests that share a cluster, which takes longer to start than any of them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With -n, the tests of that file are done by one process, and first, and all others by whichever is free.

    The mark xdist_group should do it, but pytest-xdist 3.8 does not see it under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if path == ONE_PROCESS else nodeid

    return OneProcess(config, log) if config.getoption("dist") == "load" else None


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
QUICK = ("cifar10", "mnist", "shakespeare", "office_caltech10", "pacs", "usps")


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The published data sets, laid out as their users have them, or None where they are not at hand.

    Laid out once for all workers. Of FEMNIST only the npz: writing its JSON files takes longer than all the rest.
    """
    if not (SHARED / "unpack").exists():
        return None
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-data"
    with FileLock(f"{folder}.lock"):
        done = folder / "done"
        if not done.exists():
            subprocess.run([sys.executable, SHARED / "unpack", folder, *QUICK], check=True, capture_output=True)
            (folder / "femnist").mkdir()
            shutil.copy(SHARED / "femnist" / "femnist.npz", folder / "femnist")
            done.touch()
    return folder
