"""What is published works where nothing else is: the wheel, in an environment of its own, away from the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import lacking

import fedrelay

ROOT = Path(__file__).resolve().parents[1]
COMPILED = (".so", ".dylib", ".dll")
"""What is made of the sources where it is installed."""
UNREACHABLE = re.compile(r"NewConnectionError|ConnectTimeout|ProxyError|NameResolutionError|Read timed out")

SHORT_DEMO = """
import sys
from fedrelay import cli
from fedrelay.studies import demo

demo.TABLES["rounds"] = 3
sys.exit(cli.main(["demo", "--out", "demo"]))
"""


def alone(*command: str | Path, within: Path) -> str:
    """What a command prints, in a folder, without the environment of these tests; versions are ours."""
    ours = ("PYTHON", "VIRTUAL_ENV", "COV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    constraints = str(ROOT / "constraints.txt")
    environment |= {"PIP_CONSTRAINT": constraints, "PIP_BUILD_CONSTRAINT": constraints, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=within, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode and UNREACHABLE.search(done.stdout + done.stderr):
        lacking("pip reaches no package index, so nothing can be installed into an empty environment")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    alone(sys.executable, "-m", "build", "--outdir", folder, ROOT, within=folder)
    return folder


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """An environment with nothing but pip; with torch it is too large to be left behind."""
    alone(sys.executable, "-m", "venv", "empty", within=tmp_path)
    yield tmp_path / "empty"
    shutil.rmtree(tmp_path / "empty")


def test_the_wheel_runs_the_demo_in_an_empty_environment(built, empty, tmp_path):
    (wheel,) = built.glob("*.whl")
    programs = empty / ("Scripts" if os.name == "nt" else "bin")
    # Most of what is installed is never imported here, so nothing is compiled ahead.
    alone(programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, within=tmp_path)
    assert alone(programs / "fedrelay", "--version", within=tmp_path) == f"fedrelay {fedrelay.__version__}\n"
    where = alone(programs / "python", "-c", "import fedrelay; print(fedrelay.__file__)", within=tmp_path)
    assert Path(where.strip()).is_relative_to(empty)
    compiled = "from fedrelay.kernels import native; print(native.available(), native.found())"
    if shutil.which("cc"):
        assert alone(programs / "python", "-c", compiled, within=tmp_path).startswith("True")
    assert "fedseq/table2" in alone(programs / "fedrelay", "reproduce", within=tmp_path)  # its files come along
    printed = alone(programs / "python", "-c", SHORT_DEMO, within=tmp_path)
    assert all(method in printed for method in ("fedavg", "fedcyclic", "fedseq"))
    assert "<html" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")


def test_the_sdist_has_what_its_tests_and_checks_read(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("src", "tests", "docs", "experiments", "bench")
    here = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in COMPILED
    }
    single = {
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
        "hatch_build.py",
        "mkdocs.yml",
        "pyproject.toml",
    }
    assert here | single <= names


def test_what_was_built_tells_the_version_of_the_package(built):
    wheel, sdist = sorted((path.name for path in built.iterdir() if path.suffix in (".gz", ".whl")), key=len)[::-1]
    assert re.fullmatch(rf"fedrelay-{re.escape(fedrelay.__version__)}-py3-none-(any|\w+)\.whl", wheel)
    assert sdist == f"fedrelay-{fedrelay.__version__}.tar.gz"
