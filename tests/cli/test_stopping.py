"""Ctrl-C at any moment, and output that nobody takes: an exit code, a line at most, and no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import posix
from test_main import FILE, wait_for_rounds

from fedrelay import cli
from fedrelay.system.stopping import Stopping

pytestmark = posix
COMMAND = [sys.executable, "-m", "fedrelay.cli"]
SCRIPT = "import sys; from fedrelay.cli import main; sys.exit(main())"
LONG = ["--set", "rounds=100000"]
PATIENCE = 300.0
"""Seconds: a busy machine is no mistake of the program."""
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def begin(*command: str | Path) -> subprocess.Popen[str]:
    """A program in a group of its own, as a terminal would start it: Ctrl-C is for all of the group."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> str:
    """What it said; nobody of its group is left."""
    try:
        _, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return err
        time.sleep(0.05)
    raise AssertionError("processes are left")


def quiet(err: str) -> bool:
    return "Traceback" not in err and "Exception ignored" not in err


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("how", ["module", "script"])
def test_ctrl_c_while_the_program_is_imported_ends_it_with_a_line(how, tmp_path):
    script = tmp_path / "fedrelay"
    script.write_text(SCRIPT)
    program = ["-m", "fedrelay"] if how == "module" else [str(script)]
    process = begin(sys.executable, "-X", "importtime", *program, "list")
    said = []
    for line in process.stderr:  # torch alone takes most of a second from here
        said.append(line)
        if "fedrelay.system.startup" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    err = "".join(said) + ended(process)
    assert process.returncode == 130
    assert quiet(err)
    assert err.endswith("fedrelay: stopped\n")


def test_a_program_that_imports_fedrelay_keeps_its_own_ctrl_c():
    script = "import signal, fedrelay; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def children(pid: int) -> list[int]:
    """Processes of workers, which have begun and not come far."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"--multiprocessing-fork" in (path.parent / "cmdline").read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


POOL = ["--set", "engine={name='pool', workers=2}"]


@linux
def test_ctrl_c_while_workers_are_imported_is_quiet(file):
    process = begin(*COMMAND, "run", file, "--out", "here", *LONG, *POOL)
    until(lambda: children(process.pid))
    time.sleep(0.3)  # somewhere in its imports
    os.killpg(process.pid, signal.SIGINT)
    err = ended(process)
    assert process.returncode == 130
    assert quiet(err), err
    assert err.count("\n") == 1


@linux
def test_six_times_ctrl_c_is_as_good_as_once(file):
    process = begin(*COMMAND, "run", file, "--out", "here", *LONG, *POOL)
    wait_for_rounds(Path("here"), 3)
    for _ in range(6):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.03)
    err = ended(process)
    assert process.returncode == 130
    assert quiet(err), err
    assert err.count("--resume") == 1
    done = len(Path("here/rounds.jsonl").read_text().splitlines())
    (newest,) = sorted(Path("here/checkpoint").glob("round-*.pt"))[-1:]
    assert int(newest.stem.split("-")[1]) in (done, done - 1)


@linux
def test_ctrl_c_stops_runs_beside_one_another_and_each_leaves_a_checkpoint(file):
    file.write_text(FILE + "[runs.a]\n[runs.b]\n[runs.b.local]\nlr = 0.05\n")
    process = begin(*COMMAND, "compare", file, "--jobs", "2", "--out", "both", *LONG)
    for name in "ab":
        wait_for_rounds(Path("both") / name, 2)
    os.killpg(process.pid, signal.SIGINT)
    err = ended(process)
    assert process.returncode == 130
    assert quiet(err), err
    for name in "ab":
        assert len(list((Path("both") / name / "checkpoint").glob("round-*.pt"))) > 0


def test_only_the_first_is_raised_and_one_that_python_swallowed_comes_again():
    stopping = Stopping()
    with pytest.raises(KeyboardInterrupt):
        stopping(signal.SIGINT, None)
    stopping(signal.SIGINT, None)
    stopping(signal.SIGINT, None)


SWALLOWED = """
import sys, signal, time
from fedrelay.system.stopping import stoppable

class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # what is raised here is lost

with stoppable(for_good=True):
    try:
        last = Last()
        del last
        time.sleep(30)
    except KeyboardInterrupt:
        print("heard")
"""


def test_ctrl_c_in_a_destructor_is_not_lost():
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def shell(text: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    quoted = " ".join(COMMAND)
    return subprocess.run(
        ["bash", "-c", text.replace("FEDRELAY", quoted), "bash", *map(str, args)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_output_into_a_pipe_that_closes_ends_without_a_word(file):
    done = shell("FEDRELAY list --json | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", ["list", "--help", "run run.toml --json --out here"])
def test_output_to_a_full_disk_is_said_in_one_line(file, arguments):
    done = shell(f"FEDRELAY {arguments} >/dev/full")
    assert done.returncode == 1
    assert quiet(done.stderr)
    said = "fedrelay: the output could not be written (No space left on device); what is in files is whole"
    assert done.stderr.splitlines()[-1:] == [said]
    if "here" in arguments:
        assert Path("here/summary.json").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "0<&- >&- 2>&-"])
def test_messages_that_nobody_takes_do_not_stop_a_run(file, streams):
    file.write_text(FILE + "[engine]\nname = 'pool'\nworkers = 9\n")  # more than there are chains: a warning
    assert shell(f"FEDRELAY run run.toml --json --out here {streams}").returncode == 0
    assert json.loads(Path("here/summary.json").read_text())["rounds"] == 4
    lines = Path("here/rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3, 4]


def test_a_mistake_is_still_a_mistake_where_it_cannot_be_said(file):
    assert shell("FEDRELAY run nowhere.toml 2>&-").returncode == 2


def test_a_command_called_from_python_leaves_handlers_and_streams_as_they_were(file, capsys):
    def found():
        return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.stdout, sys.unraisablehook

    before = found()
    assert cli.main(["run", "nowhere.toml"]) == 2
    assert found() == before
