"""What is promised about where things come from: lower bounds, licences, and the list of what is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FIRST_GOOD = {  # the first version without the weakness that its advisory names
    "torch": "2.10.0",
    "pillow": "12.2.0",
    "jinja2": "3.1.6",
    "filelock": "3.20.3",
    "scikit-learn": "1.5.0",
    "pyarrow": "23.0.1",
    "pydicom": "3.0.2",
    "onnx": "1.21.0",
    "cryptography": "46.0.5",
    "ray": "2.52.0",
    "mlflow-skinny": "3.5.0",
}


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return {found.name.lower(): found for lines in lists for found in map(Requirement, lines)}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line]
    return {re.sub(r"[-_.]+", "-", name).lower(): Version(version) for name, version in pairs}


@pytest.mark.parametrize(("name", "first"), FIRST_GOOD.items())
def test_no_version_with_a_known_weakness_is_allowed(name, first):
    wanted = requirements()[name].specifier
    number = list(Version(first).release)
    number[-1] -= 1
    if number[-1] < 0:
        number = [number[0], number[1] - 1, 99]
    assert not wanted.contains(".".join(map(str, number)))
    assert wanted.contains(first)


def test_the_pins_satisfy_the_bounds():
    found = pins()
    missing = [name for name in requirements() if re.sub(r"[-_.]+", "-", name) not in found and name != "fedrelay"]
    assert missing == []
    wrong = [
        name
        for name, wanted in requirements().items()
        if name != "fedrelay" and not wanted.specifier.contains(found[re.sub(r"[-_.]+", "-", name)])
    ]
    assert wrong == []


def test_the_list_of_what_is_installed_names_no_machine(tmp_path):
    """As `make dist` writes it."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    if not program.exists():
        pytest.skip("cyclonedx-py is not beside this Python")
    command = [
        program,
        "environment",
        sys.executable,
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
        "--no-validate",
    ]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert listed["bomFormat"] == "CycloneDX"
    assert {"torch", "numpy", "pillow", "filelock"} <= {one["name"].lower() for one in listed["components"]}
    assert "file:" not in done.stdout
    assert str(ROOT) not in done.stdout
    assert str(Path.home()) + "/" not in done.stdout


def test_the_page_on_security_says_how_to_report_and_what_is_promised():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert all(f"## {title}" in page for title in ("Reporting", "Supported versions", "What is promised"))
    assert "@" not in page  # no address that nobody reads
