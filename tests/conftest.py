"""What many tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from browser import Browser
from filelock import FileLock

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no mistake of the code
hypothesis.settings.load_profile("patient")

# In the background and under nohup SIGINT is ignored, and so it would be in every process that a test starts to
# interrupt it: Python listens to Ctrl-C only where its parent has not said otherwise.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = ("test_attack.py", "test_ray.py", "test_dist.py", "test_site.py")
"""Files that begin first, or one process would be left with them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One real browser for all tests of a process."""
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()
