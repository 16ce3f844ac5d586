from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from invented_runs import run_folder
from needs import posix

from fedrelay import cli
from fedrelay.algorithms import ALGORITHMS

FILE = """
rounds = 4
[data]
name = "digits"
clients = 10
partition = { name = "dirichlet", alpha = 0.0 }
[model]
name = "mlp"
hidden = [8]
[local]
batch = 8
lr = 0.1
[algorithm]
name = "fedseq"
max_clients = 5
fraction = 1.0
[evaluate]
every = 2
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def test_run_json_prints_the_summary_and_nothing_else(file, capsys):
    assert cli.main(["run", str(file), "--out", "here", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads(Path("here/summary.json").read_text())
    assert printed.err == ""


def test_run_without_out_names_the_folder_after_the_method(file, capsys):
    assert cli.main(["run", str(file)]) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("fedseq-")
    assert str(folder) in capsys.readouterr().out


def test_set_overrides_the_file(file, capsys):
    assert cli.main(["run", str(file), "--set", "algorithm.fraction=0.5", "--set", "rounds=2", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rounds"] == 2
    assert summary["messages"]["total"] == 2 * (1 + 5)  # one group of five instead of two


def test_resume_of_a_finished_run_gives_the_same_summary(file, capsys):
    assert cli.main(["run", str(file), "--out", "here", "--json"]) == 0
    first = capsys.readouterr().out
    assert cli.main(["run", str(file), "--out", "here", "--json", "--resume"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.toml"], "there is no file"),
        (["run", "run.toml", "--set", "algorithm.name=fedsek"], "did you mean 'fedseq'"),
        (["run", "run.toml", "--set", "local.lr=-1"], "lr must be at least 0"),
        (["report", "nowhere"], "nowhere"),
        (["run", "run.toml", "--out", "run.toml"], "is not a run folder"),
        (["run", "run.toml", "--out", "run.toml/x"], "is not a run folder"),
        (["run", "run.toml/x"], "cannot be read"),
        (["run", "run.toml", "--set", "local.lr=inf"], "lr must be at least 0, not inf"),
        (["run", "run.toml", "--set", "local.lr=2026-01-01"], "expected a number"),
        (["run", "run.toml", "--set", "local.schedule=none"], "expected a name or a table"),
        (["run", "run.toml", "--set", "local.epochs=1", "--set", "local.steps=2"], "exclude each other"),
        (["run", "run.toml", "--set", "engine={name='inline', threads=100000}"], "at most 256"),
    ],
)
def test_bad_input_is_one_or_two_lines_without_a_traceback_and_exits_with_2(file, capsys, arguments, message):
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.err.count("\n") <= 2


def test_a_failed_run_exits_with_1_and_debug_shows_the_traceback(file, capsys):
    file.write_text("""
data = { name = "quadratic" }
model = { name = "quadratic" }
local = { steps = 99, lr = 1e3 }
algorithm = { name = "fedavg" }
""")
    arguments = ["run", str(file), "--out"]
    assert cli.main([*arguments, "one"]) == 1
    printed = capsys.readouterr().err
    assert "every chain failed" in printed
    assert "Traceback" not in printed
    assert cli.main([*arguments, "two", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_list_names_every_algorithm_with_its_parameters(capsys):
    assert cli.main(["list", "algorithms", "--json"]) == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(ALGORITHMS) <= set(found)
    assert found["fedavg"]["parameters"]["fraction"] == 0.2
    assert found["fedgsp"]["parameters"]["fraction"] == 0.3
    assert found["centralized"]["parameters"] == {}
    assert all(entry["about"] for entry in found.values())
    for kind in ["data", "models", "partitions"]:
        assert cli.main(["list", kind]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ["digits", "mlp", "dirichlet"])


def test_a_run_that_is_not_there_is_no_measure_for_others(tmp_path, capsys):
    folders = [str(run_folder(tmp_path / name)) for name in ("one", "two")]
    out = str(tmp_path / "page.html")
    assert cli.main(["report", *folders, "--out", out, "--baseline", "three"]) == 2
    said = capsys.readouterr().err
    assert "there is no run 'three' to measure the others against: there is one, two" in " ".join(said.split())
    again = ["report", *folders, "--out", out, "--baseline", "two", "--parallelism-baseline", "one"]
    assert cli.main(again) == 0
    page = Path(out).read_text(encoding="utf-8")
    assert "Speed-up over two to" in page
    assert "times one&#39;s" in page


def test_report_writes_one_page(file, capsys):
    assert cli.main(["run", str(file), "--out", "here", "--json"]) == 0
    assert cli.main(["report", "here", "--out", "page.html"]) == 0
    assert "fedseq" in Path("page.html").read_text()


@posix
def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on(file):
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(file), "--set", "rounds=100000", "--out", "here"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for_rounds(Path("here"), 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "--resume" in err
    assert list(Path("here/checkpoint").glob("round-*.pt"))
    done = len(Path("here/rounds.jsonl").read_text().splitlines())
    code = cli.main(["run", str(file), "--set", f"rounds={done + 2}", "--out", "here", "--resume", "--json"])
    assert code == 0


@posix
def test_under_nohup_ctrl_c_is_not_heard_but_being_asked_to_end_is(file):
    """Whoever started it chose that SIGINT is ignored, and it stays so."""
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(file), "--set", "rounds=100000", "--out", "here"]
    deaf = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    with subprocess.Popen(deaf, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for_rounds(Path("here"), 3)
            process.send_signal(signal.SIGINT)
            wait_for_rounds(Path("here"), len(Path("here/rounds.jsonl").read_text().splitlines()) + 3)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "--resume" in err


@posix
def test_a_terminal_shows_live_progress_and_a_pipe_does_not(file):
    """A real pseudo-terminal: what a person would see."""
    command = [sys.executable, "-m", "fedrelay.cli", "run", str(file)]
    quiet = subprocess.run([*command, "--out", "piped"], capture_output=True, text=True, check=True)
    assert quiet.stderr == ""
    import pty  # Windows has none

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen([*command, "--out", "seen"], stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = read_all(master)
    assert process.wait(60) == 0
    assert "accuracy" in seen
    assert "rounds/s" in seen
    assert "4/4" in seen


def read_all(descriptor: int) -> str:
    content = b""
    try:
        while piece := os.read(descriptor, 4096):
            content += piece
    except OSError:  # Linux says so when the other end has closed
        pass
    return content.decode(errors="replace")


def wait_for_rounds(folder: Path, rounds: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        path = folder / "rounds.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= rounds:
            return
        time.sleep(0.02)
    raise AssertionError("the run did not begin")


def test_a_command_does_not_wait_for_libraries_that_only_some_need():
    heavy = ["cryptography", "flwr", "grpc", "matplotlib", "mlflow", "opacus", "ortools", "pandas", "plotly", "ray"]
    heavy += ["pyarrow", "scipy", "sklearn", "torchmetrics"]
    code = f"import sys, fedrelay.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
