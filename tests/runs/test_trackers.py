"""Logbooks of other programs, read back by those programs' own means: every round once, also in a run that goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needed, posix

from fedrelay import cli
from fedrelay.runs.trackers import TRACKERS, tracker
from fedrelay.runs.trackers.mlflow import QUIET
from fedrelay.runs.trackers.wandb import records

FILE = """
rounds = 3
data = { name = "synthetic", examples = 60, test_examples = 20, shape = [4], clients = 4 }
model = { name = "logistic" }
local = { lr = 0.1 }
algorithm = { name = "fedavg", fraction = 1.0 }
engine = { name = "inline" }
evaluate = { every = 1 }
"""
TWICE = """
import sys
from fedrelay import cli
for more in ([], ["--set", "rounds=5", "--resume"]):
    assert cli.main(["run", "run.toml", "--out", "runs/a", *more, *sys.argv[1:]]) == 0
"""
KILLED = """
import os, signal, sys, time
from pathlib import Path
from fedrelay.runs.trackers import trackers
(one,) = trackers(["wandb"], Path("runs/a"))
done = one.begin({})
for round in range(done + 1, 601):
    one.write(round, {"test/accuracy": round / 1024})
if done:
    one.end({})
    sys.exit()
(path,) = Path("runs/a/wandb").glob("offline-run-*/*.wandb")
while path.stat().st_size < 32768:  # something is on disk, by no means all
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
OPTIONS = ["--tensorboard", "--mlflow", "--wandb", "offline"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run.toml").write_text(FILE)
    return tmp_path / "runs" / "a"


def in_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    reading = needed("tensorboard.backend.event_processing.event_accumulator")
    found = reading.EventAccumulator(str(folder / "tensorboard"), size_guidance={reading.SCALARS: 0})
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def in_mlflow(folder: Path):
    client = needed("mlflow").MlflowClient(tracking_uri=Path("mlruns").resolve().as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("fedrelay").experiment_id])
    steps = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return run, {key: [(one.step, one.value) for one in history] for key, history in steps.items()}


def in_wandb(folder: Path) -> list[tuple[int, float]]:
    """Accuracies by round."""
    record, found = needed("wandb.proto.wandb_internal_pb2").Record, []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for one in map(record.FromString, records(path.read_bytes())):
            items = {item.nested_key[0]: json.loads(item.value_json) for item in one.history.item if item.nested_key}
            if "test/accuracy" in items:
                found.append((items["_step"], items["test/accuracy"]))
    return found


def test_every_round_is_in_every_logbook_once_and_nothing_is_sent(folder):
    """A run of three rounds that goes on to five, in a process whose ways out lead to us."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        way_out = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        outside = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), way_out)
        done = subprocess.run(
            [sys.executable, "-c", TWICE, *OPTIONS],
            env=os.environ | outside,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        with pytest.raises(BlockingIOError):  # nobody has come
            proxy.accept()
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    accuracies = [(line["round"], pytest.approx(line["accuracy"])) for line in lines]
    sent = [sum(line["bytes"].values()) for line in lines]
    assert [step for step, _ in accuracies] == [1, 2, 3, 4, 5]

    scalars = in_tensorboard(folder)
    assert scalars["test/accuracy"] == accuracies
    assert scalars["traffic/total_bytes"] == [(n, pytest.approx(sum(sent[:n]))) for n in range(1, 6)]

    run, metrics = in_mlflow(folder)
    assert metrics["test/accuracy"] == accuracies
    assert (run.info.status, run.info.run_name) == ("FINISHED", "runs/a")
    assert run.data.params["algorithm.name"] == "fedavg"
    assert run.data.metrics["summary/rounds"] == 5

    assert in_wandb(folder) == accuracies


@posix
def test_a_wandb_run_that_was_killed_goes_on_under_its_own_id(folder):
    folder.mkdir(parents=True)
    codes = [subprocess.run([sys.executable, "-c", KILLED], check=False).returncode for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
    assert in_wandb(folder) == [(round, round / 1024) for round in range(1, 601)]
    parts = [path.name.rsplit("-", 1)[1] for path in folder.glob("wandb/offline-run-*")]
    assert parts == [json.loads((folder / "wandb.json").read_text())["run"]] * 2


def test_a_run_that_had_no_logbook_gets_all_its_rounds_when_it_goes_on_with_one(folder, capsys):
    assert cli.main(["run", "run.toml", "--out", str(folder)]) == 0
    more = ["--set", "rounds=4", "--resume", "--tensorboard"]
    assert cli.main(["run", "run.toml", "--out", str(folder), *more]) == 0
    assert [step for step, _ in in_tensorboard(folder)["round/seconds"]] == [1, 2, 3, 4]


def test_a_comparison_writes_them_too(folder, capsys):
    Path("many.toml").write_text(FILE.replace("rounds = 3", "rounds = 2") + "[runs.one]\n[runs.two]\nseed = 1\n")
    assert cli.main(["compare", "many.toml", "--out", "runs", "--tensorboard"]) == 0
    for name in ("one", "two"):
        assert [step for step, _ in in_tensorboard(Path("runs") / name)["test/accuracy"]] == [1, 2]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_told_with_the_command_that_installs_it(folder, capsys, monkeypatch, name):
    def missing(module: str):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(tracker, "import_module", missing)
    option = ["--wandb", "offline"] if name == "wandb" else [f"--{name}"]
    assert cli.main(["run", "run.toml", "--out", str(folder), *option]) == 2
    assert f"pip install 'fedrelay[{name}]'" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("options", [["--tensorboard"], ["--wandb", "offline"]])
def test_nothing_is_written_through_a_link_in_a_folder_that_came_from_elsewhere(folder, capsys, options):
    assert cli.main(["run", "run.toml", "--out", str(folder)]) == 0
    Path("elsewhere").mkdir()
    (folder / options[0].strip("-")).symlink_to(Path("elsewhere").resolve())
    assert cli.main(["run", "run.toml", "--out", str(folder), "--set", "rounds=4", "--resume", *options]) == 2
    assert "expected a plain folder, found a link" in capsys.readouterr().err
    assert list(Path("elsewhere").iterdir()) == []


def test_a_logbook_that_cannot_be_written_does_not_stop_the_run(folder, capsys, caplog, monkeypatch):
    def full(self, round, figures):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TRACKERS["tensorboard"], "write", full)
    more = ["--set", "rounds=4", "--tensorboard"]
    assert cli.main(["run", "run.toml", "--out", str(folder), *more]) == 0
    assert "TensorBoard is given up for this run, which goes on" in caplog.text
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 4
