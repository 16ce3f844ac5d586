"""Chains on a real Ray cluster of two machines (two nodes of this one): the same bits, whoever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from needs import needed
from rich.console import Console
from test_pool import CHAINS, SEED, Count, Deadly, Slow, Sluggish, chains, plain, told

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, cli, config, deployed, train, vectors
from fedrelay.algorithms import fedseq
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline, Ray
from fedrelay.engines.cluster import joining
from fedrelay.models import SmallCnn
from fedrelay.runs.underway import UnderwayFiles
from fedrelay.runs.underway import told as far
from fedrelay.studies import on_cluster
from fedrelay.studies.advise import Wishes, advise
from fedrelay.studies.advise.race import raced
from fedrelay.studies.compare import compare
from fedrelay.system import processes
from fedrelay.types import Baton, Report, Work

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Ray has clusters of several nodes on Linux only")
SHARED = {"told": torch.zeros(2)}


PATIENCE = 300.0
"""Seconds that a busy machine has for what takes a few."""
ATTEMPTS = 6


class Nodes:
    """A cluster of two nodes with a CPU each: this program is on the first, the second can be killed."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.add(include_dashboard=False)
        self.second = self.add()

    def add(self, **settings: Any) -> Any:
        """Another node, without what only people need who look at it.

        Ray gives the helpers of a node some seconds to start, so a busy machine may need several attempts.
        """
        quick = {"include_log_monitor": False, "no_monitor": True, "wait": False, "num_cpus": 1, **settings}
        for left in reversed(range(ATTEMPTS)):
            before = children(os.getpid())
            try:
                found = self.cluster.add_node(**quick)
                break
            except Exception:
                kill(children(os.getpid()) - before)  # what has started of it would only be in the way
                if not left:
                    raise
        self.cluster.wait_for_nodes(timeout=PATIENCE)
        return found

    def have_both(self) -> None:
        self.second = self.second or self.add()

    def kill_second(self) -> None:
        """As pulling its plug: its raylet and all that it has started end at once, and nobody is told."""
        if self.second is not None:
            started = children(self.second.all_processes["raylet"][0].process.pid)
            self.cluster.remove_node(self.second, allow_graceful=False)
            kill(started)
            self.second = None


def children(pid: int) -> set[int]:
    """Processes that this one has started, and that are left."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for thread in threads for child in thread.read_text().split()}


def kill(those: set[int]) -> None:
    for pid in those:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where Ray has sockets, whose names must be short (so it is not pytest's own), and logs, which it would leave."""
    path = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(folder) -> Iterator[Nodes]:
    needed("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else they wait for all other tests
        patch.setenv("RAY_worker_register_timeout_seconds", str(int(PATIENCE)))
        patch.setenv(joining.WAIT, str(int(PATIENCE)))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))  # Count is to be found
        from ray.cluster_utils import Cluster

        hears, cluster = signal.getsignal(signal.SIGTERM), Cluster()
        try:
            found = Nodes(cluster)
            joining.join(cluster.address)
            yield found
        finally:
            joining.load().shutdown()
            cluster.shutdown()
            signal.signal(signal.SIGTERM, hears)


@pytest.fixture(scope="module")
def digit_clients() -> tuple[Federation, Task]:
    found = Federation.split(digits(), Dirichlet(alpha=0.1, deal="classes"), 12, SEED)
    return found, Task.of(SmallCnn(channels=(4,)), found)


@pytest.fixture(scope="module")
def engine(nodes, digit_clients) -> Iterator[Ray]:
    """One for all: a worker takes seconds to start."""
    with Ray(*digit_clients, SEED, address=nodes.cluster.address) as found:
        yield found


@pytest.fixture
def inline(digit_clients) -> Inline:
    return Inline(*digit_clients, SEED)


def test_outcomes_and_memories_are_those_of_inline_in_the_order_of_chains(engine, inline):
    work = Count(raising=frozenset({4}), spoiling=frozenset({3}))
    shared = {"told": torch.tensor([7.0, 8.0])}
    for round in (1, 2, 3):
        there, here = (list(one.run(work, chains(*CHAINS), shared, round)) for one in (engine, inline))
        assert told(there) == told(here)
        for one in (engine, inline):
            one.commit(round)
        (a, kept), (b, expected) = engine.memories(), inline.memories()
        assert a == b == round
        assert plain(dict(kept)) == plain(dict(expected))
    assert kept[0]["visits"] == 3
    assert sorted(kept) == [0, 1, 2, 5]


def test_the_model_is_the_same_to_the_bit_as_inline(engine, inline):
    algorithm = fr.method(fedseq(max_clients=2), local=Sgd(batch=8, lr=0.1, momentum=0.5), fraction=1.0)

    def fingerprints(one) -> list[str]:
        one.remember(0, {})
        return [vectors.sha256(deployed(state).params) for state in train(algorithm, one, rounds=2)]

    expected = fingerprints(inline)
    assert expected[0] != expected[1]
    assert fingerprints(engine) == expected


@dataclass(frozen=True)
class Located(Work):
    """Tells in which file the data set is mapped."""

    def __call__(self, baton, visit):
        there = visit.client.examples.x.data_ptr()
        for line in Path("/proc/self/maps").read_text().splitlines():
            bounds, *_, name = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if start <= there < end:
                break
        return Baton(baton.params + 1, 1.0), {"mapped": name}, Report(visit.client.id, 1)


def test_workers_look_at_the_data_in_the_object_store_of_their_machine(engine):
    engine.remember(0, {})
    list(engine.run(Located(), chains((0,), (1,), (2,), (3,)), SHARED, 1))
    engine.commit(1)
    files = [memory["mapped"] for memory in engine.memories()[1].values()]
    assert len(files) == 4
    assert all("plasma" in file for file in files), files


def test_a_worker_that_is_killed_is_replaced_and_its_chains_are_run_again(engine, inline, tmp_path, caplog):
    engine.remember(0, {})
    found = list(engine.run(Deadly(str(tmp_path), lives=1), chains(*CHAINS), SHARED, 1))
    engine.commit(1)
    assert len(list(tmp_path.iterdir())) == 1
    assert told(found) == told(inline.run(Count(), chains(*CHAINS), SHARED, 1))
    assert [memory["visits"] for memory in engine.memories()[1].values()] == [1] * 6
    assert caplog.text.count("another takes its place and runs its chains again") == 1


def test_a_round_that_is_left_halfway_dismisses_its_workers_and_the_next_one_is_right(engine):
    outcomes = engine.run(Slow(), chains((0, 1), (3,)), {}, 1)
    assert next(outcomes).chain.clients == (0, 1)
    outcomes.close()
    found = list(engine.run(Count(), chains((0, 1), (3,)), SHARED, 2))
    assert [o.baton.params.tolist() for o in found] == [[2, 2], [2, 2]]


@dataclass(frozen=True)
class Diligent(Work):
    """As `Count`, but keeps what it has done so far, and tells it; hours at client 2, unless something was kept."""

    def __call__(self, baton, visit):
        kept = visit.place.find("part")
        visit.place.tell("part", 3, 4)
        visit.place.underway.keep(
            f"{visit.place.name}-part", visit.place.whose, lambda: {"at": visit.client.id}, now=True
        )
        if visit.client.id == 2 and kept is None:
            time.sleep(PATIENCE)
        after, memory, report = Count()(baton, visit)
        return after, memory, Report(report.client, report.examples, report.metrics, {"kept": kept or {}})


def test_what_was_kept_and_told_elsewhere_is_in_the_folder_of_the_run(engine, tmp_path, monkeypatch):
    """And whoever takes the place of a worker that is lost goes on from there."""
    monkeypatch.setattr(processes, "LOOK", 0.2)
    engine.remember(0, {})
    engine.keep_in(UnderwayFiles(tmp_path))
    monkeypatch.setattr("fedrelay.runs.underway.GLANCE", 0.0)
    outcomes = engine.run(Diligent(), chains((2, 4)), SHARED, 1)
    path = tmp_path / "chain-2-part.pt"

    def kill_when_kept() -> None:
        wait_for(path)
        (busy,) = [one for one in engine._workers.workers if one.job is not None]
        joining.load().kill(busy.actor)

    killer = threading.Thread(target=kill_when_kept)
    killer.start()
    (found,) = outcomes
    killer.join()
    assert [report.uplink["kept"].get("at") for report in found.reports] == [2, 2]
    assert {"hop": (1, 2), "part": (3, 4)} in [one.figures for one in far(tmp_path)]
    engine._underway = None


def wait_for(*paths: Path) -> None:
    wait_until(lambda: all(path.exists() for path in paths))


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@dataclass(frozen=True)
class Waiting(Work):
    """As `Count`, but says where it is, and waits until it may go on."""

    folder: str

    def __call__(self, baton, visit):
        (Path(self.folder) / f"at-{visit.client.id}").touch()
        wait_for(Path(self.folder) / "go")
        return Count()(baton, visit)


def test_a_machine_that_is_killed_in_the_middle_of_a_round_is_done_without(nodes, engine, inline, tmp_path, caplog):
    nodes.have_both()
    both = chains((0,), (1,))

    def kill_when_all_are_at_work() -> None:
        wait_for(tmp_path / "at-0", tmp_path / "at-1")
        nodes.kill_second()
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill_when_all_are_at_work)
    killer.start()
    found = list(engine.run(Waiting(str(tmp_path)), both, SHARED, 1))
    killer.join()
    assert told(found) == told(inline.run(Count(), both, SHARED, 1))
    assert "another takes its place and runs its chains again" in caplog.text


def test_a_machine_that_computes_otherwise_is_refused_when_a_worker_is_hired(nodes, digit_clients, engine, monkeypatch):
    engine.close()  # its workers hold the CPUs
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")  # here and not there, as it was not set when nodes were started
    with (
        Ray(*digit_clients, SEED, address=nodes.cluster.address, workers=1) as other,
        pytest.raises(
            BadInput, match=r"pid \d+ on .* has MKL_CBWR not set instead of COMPATIBLE: results would depend"
        ),
    ):
        list(other.run(Count(), chains((0,)), SHARED, 1))
    assert other._workers is None


def test_a_machine_with_another_fedrelay_is_refused_and_named(nodes, digit_clients, tmp_path):
    nodes.kill_second()
    (tmp_path / "fedrelay").mkdir()
    (tmp_path / "fedrelay" / "__init__.py").touch()
    nodes.second = nodes.add(env_vars={"PYTHONPATH": str(tmp_path)})
    with (
        Ray(*digit_clients, SEED, address=nodes.cluster.address) as other,
        pytest.raises(
            BadInput, match=r"pid=\d+, ip=.* cannot load this run: .*No module named 'fedrelay.engines'; every"
        ),
    ):
        list(other.run(Sluggish(), chains(*[(client,) for client in range(12)] * 40), SHARED, 1))
    nodes.kill_second()


def test_runs_on_the_cluster_are_begun_again_where_their_process_is_lost(nodes, engine, tmp_path, monkeypatch):
    engine.close()  # its workers hold the CPUs
    monkeypatch.chdir(tmp_path)
    with on_cluster.workers(nodes.cluster.address, 1, tmp_path / "out") as executor:
        there = executor.submit(mortal, str(tmp_path / "lives"))
        with pytest.raises(BadInput, match=f"^2 lives in {tmp_path} on 1 core$"):  # what it raises is raised here
            there.result(PATIENCE)
    assert list((tmp_path / "out").iterdir()) == []


def mortal(path: str) -> None:
    """Ends its own process the first time."""
    with Path(path).open("a") as file:
        file.write("x")
    lives = len(Path(path).read_text())
    if lives == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raise BadInput(f"{lives} lives in {Path.cwd()} on {os.environ['FEDRELAY_CORES']} core")


FILE = """
rounds = 2
seed = 3
data = { name = "digits", clients = 8, partition = { name = "dirichlet", alpha = 0.1 } }
model = { name = "logistic" }
algorithm = { name = "fedseq", max_clients = 2, fraction = 1.0 }
"""
RUNS = """
[runs.slow]
local = { lr = 0.01 }
[runs.fast]
local = { lr = 0.1 }
"""


def fingerprint(tables: dict[str, Any], out: Path) -> str:
    """Of the model of the same run, in this process."""
    recorder = config.build({**tables, "engine": {"name": "inline"}}).record(out)
    list(recorder.run())
    return recorder.summary().params_sha256


ITEM = """
title = "One method"
where = "Table 1"
study = "compare"
columns = [{ name = "accuracy", measure = "accuracy" }]
panels = { digits = {} }
scales = { smoke = { why = "two rounds", change = {} } }
[experiment]
SAID
[experiment.runs.FedSeq]
local = { lr = 0.1 }
"""


def test_what_reproduce_runs_on_the_cluster_gives_the_same_model(nodes, engine, tmp_path, monkeypatch):
    """By the way of `fedrelay compare`, whose runs they are."""
    engine.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "item.toml").write_text(ITEM.replace("SAID", FILE + 'engine = { name = "inline" }'))
    words = ["--scale", "smoke", "--ray", nodes.cluster.address, "--jobs", "1", "--out", "out", "--quiet"]
    assert cli.main(["reproduce", "item.toml", *words]) == 0
    (done,) = Path("out").rglob("summary.json")
    expected = fingerprint({**tomllib.loads(FILE), "local": {"lr": 0.1}}, tmp_path / "here")
    assert json.loads(done.read_text())["params_sha256"] == expected
    assert (tmp_path / "out" / "table.md").is_file()


def test_a_race_on_the_cluster_is_the_race_that_it_is_here(nodes, engine, tmp_path, monkeypatch):
    engine.close()
    monkeypatch.chdir(tmp_path)
    tables = tomllib.loads(FILE + 'engine = { name = "inline" }')
    advice, _ = advise(tables, Wishes(state=False, reach="none"))
    plain = [replace(one, values=(0.1,)) for one in advice.candidates if one.method == "fedavg"]

    def race(out: str, ray: str | None) -> list[dict[str, float]]:
        found = raced(tables, advice.facts, plain, Path(out), Console(quiet=True), rounds=1, jobs=1, ray=ray)
        return [dict(log.metrics) for one in found.entries for log in one.trial.attempts[0].logs]

    assert race("there", nodes.cluster.address) == race("here", None)
    (path,) = Path("there").glob("*/config.toml")
    assert tomllib.loads(path.read_text())["algorithm"]["name"] == "fedavg"


def test_runs_on_a_cluster_cannot_spread_their_chains_as_well(tmp_path):
    needed("ray")
    two = tomllib.loads(FILE + 'engine = { name = "ray" }' + RUNS)
    with pytest.raises(BadInput, match="run 'slow': the engine ray spreads the chains of a run"):
        compare(two, tmp_path / "out", Console(quiet=True), name="two.toml", ray="127.0.0.1:1")


def test_a_machine_that_does_not_see_the_folder_is_refused(tmp_path):
    value, raised = on_cluster.there(str(tmp_path), str(tmp_path / "no" / "marker"), 1, abs, (-1,), {})
    assert value is None
    assert "no is another folder, or none, on the machine" in str(raised)


def test_a_run_on_a_cluster_of_its_own_that_is_stopped_goes_on_inline_to_the_same_bits(folder, tmp_path, capsys):
    """And nothing is left behind: no process, and no token for others to read."""
    needed("ray")
    (tmp_path / "one.toml").write_text(FILE)
    (home := tmp_path / "home").mkdir()
    for attempt in range(ATTEMPTS):
        out = tmp_path / f"out-{attempt}"
        process = begun(out, {"RAY_TMPDIR": str(folder), "HOME": str(home), "FEDRELAY_CORES": "1"})
        until = time.monotonic() + PATIENCE
        while process.poll() is None and lines(out / "rounds.jsonl") < 2 and time.monotonic() < until:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal would: its whole group hears it
        _, said = process.communicate(timeout=PATIENCE)
        if "timed out during startup" not in said:  # Ray gives itself half a minute, whatever else the machine does
            break
    assert process.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
    wait_until(lambda: not started_with(f"HOME={home}"))
    assert list(home.iterdir()) == []
    rounds = lines(out / "rounds.jsonl") + 2
    command = ["run", str(tmp_path / "one.toml"), "--out", str(out), "--resume", "--json"]
    assert cli.main([*command, "--set", "engine.name=inline", "--set", f"rounds={rounds}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["params_sha256"] == fingerprint({**tomllib.loads(FILE), "rounds": rounds}, tmp_path / "inline")


def begun(out: Path, settings: dict[str, str]) -> subprocess.Popen[str]:
    """A long run on a cluster of its own, in a group of processes of its own."""
    command = [sys.executable, "-m", "fedrelay.cli", "run", "one.toml", "--out", out.name]
    command += ["--set", "engine.name=ray", "--set", "rounds=100000"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | settings
    return subprocess.Popen(
        command,
        cwd=out.parent,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def started_with(setting: str) -> list[str]:
    """Processes that have this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if setting.encode() in path.read_bytes().split(b"\0"):
                found.append(path.with_name("cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 99}, r"workers = 99, but the Ray cluster has \d CPU\(s\) on \d machine\(s\)"),
        ({"address": "127.0.0.1:1"}, "connected to the Ray cluster .* already"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused(nodes, digit_clients, settings, said):
    engine = Ray(*digit_clients, **{"address": nodes.cluster.address, **settings})
    with pytest.raises(BadInput, match=said):
        list(engine.run(Count(), chains((0,)), SHARED, 1))


def test_an_object_store_without_room_for_the_data_is_refused_with_the_room_needed(nodes, digit_clients, monkeypatch):
    monkeypatch.setattr(joining, "ROOM", 1_000_000_000)
    engine = Ray(*digit_clients, address=nodes.cluster.address)
    with pytest.raises(BadInput, match=r"with models 100\d MB, but .* has 157 MB: .* --object-store-memory=100"):
        list(engine.run(Count(), chains((0,)), SHARED, 1))
