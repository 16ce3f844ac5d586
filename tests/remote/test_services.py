"""The units and the Containerfile of docs/deploy.md: systemd takes them, and their commands are commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import posix

from fedrelay.cli.main import parser

pytestmark = posix
PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
UNITS = dict(re.findall(r"^```ini (\S+\.service)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
PROGRAM = "/opt/fedrelay/bin/fedrelay"


def test_the_commands_of_the_units_are_commands():
    assert sorted(UNITS) == ["fedrelay-client.service", "fedrelay-server.service"]
    for unit in UNITS.values():
        (line,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", unit, re.MULTILINE)
        options = parser().parse_args(shlex.split(line))
        kept = options.out if hasattr(options, "out") else options.home
        assert kept.is_relative_to("/var/lib/fedrelay")  # the one place that ProtectSystem=strict leaves to it


def test_systemd_has_nothing_to_say_about_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name, unit in UNITS.items():
        (tmp_path / name).write_text(unit.replace(PROGRAM, sys.executable), encoding="utf-8")
    words = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    ours = [line for line in ran.stderr.splitlines() if "fedrelay" in line]  # others' units are none of our business
    assert (ran.returncode, ours) == (0, []), ran.stderr


def test_the_container_installs_an_extra_that_there_is_and_ends_in_the_program():
    (text,) = re.findall(r"^```dockerfile Containerfile\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    known = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"fedrelay\[([\w,]+)\]", text)
    assert all(f"\n{extra} = [" in known for extra in extras.split(","))
    assert re.findall(r"^[A-Z]+", text, re.MULTILINE) == ["FROM", "RUN", "ENV", "USER", "WORKDIR", "ENTRYPOINT"]
    assert 'ENTRYPOINT ["fedrelay"]' in text
