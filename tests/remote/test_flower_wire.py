"""The Flower wire over a grid in this process: the same bits, and what fails is named as ours."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import flower_grid
import numpy as np
import pytest
from flower_grid import FILE, NAMES, expected, grid_of, lines_of, run, tables
from flower_grid import quick as quick

from fedrelay import config
from fedrelay.cli.main import main
from fedrelay.errors import BadInput
from fedrelay.remote.flower import server
from fedrelay.remote.flower.folder import name_of
from fedrelay.remote.flower.node import node_of
from fedrelay.remote.flower.records import Parcel, packed, unpacked


def test_a_run_over_flower_ends_with_the_model_of_the_simulation_to_the_bit(tmp_path):
    grid = grid_of(tmp_path, beginning=1.0)
    _, recorder = run(grid, tables())
    assert recorder.summary().params_sha256 == expected(tables(), tmp_path)
    assert recorder.summary().drops == 0
    assert [kind for _, kind, _ in grid.sent].count("train") == sum(line["visits"] for line in lines_of(recorder.path))
    kept = [path for path in tmp_path.glob("*/*/*") if path.parent.parent.name in NAMES]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    assert {path.name for path in kept} > {"prepared"}  # and what scaffold keeps


def test_simulated_nodes_take_their_names_in_order(tmp_path):
    grid = grid_of(tmp_path, beginning=1.0)
    grid.configs = {7 * place + 1: {"partition-id": place, "num-partitions": 4} for place in range(4)}
    _, recorder = run(grid, tables())
    assert recorder.summary().params_sha256 == expected(tables(), tmp_path)
    assert sorted(path.name for path in (tmp_path / "run-clients").iterdir()) == list(NAMES)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    told = {**tables(), "checkpoint": 1}
    grid = grid_of(tmp_path)
    recorder = server.host_of(grid, grid.settings, told).open()
    rounds = recorder.run()
    next(rounds)
    next(rounds)
    rounds.close()
    grid.settings["resume"] = True
    _, again = run(grid, told)
    assert again.summary().params_sha256 == expected(told, tmp_path)


def test_a_node_that_is_lost_is_named_by_its_client_and_used_again(tmp_path, caplog):
    grid = grid_of(tmp_path)
    lost = []

    def fail(node, kind):
        if node == 99 and kind == "train" and not lost:
            lost.append(node)
            return flower_grid.NODE_UNAVAILABLE
        return 0

    grid.fail = fail
    with caplog.at_level("INFO", "fedrelay"):
        run(grid, tables())
    drops = [drop for line in lines_of(tmp_path / "run") for drop in line["drops"]]
    assert [(drop["client"], drop["reason"]) for drop in drops] == [(1, "its SuperNode is not there any more")]
    assert "north is lost: its SuperNode is not there any more" in caplog.text
    assert lines_of(tmp_path / "run")[-1]["clients"] == 4


def test_an_app_that_raises_costs_its_visit_and_no_more(tmp_path):
    grid = grid_of(tmp_path)
    grid.fail = lambda node, kind: flower_grid.APP_RAISED if node == 98 and kind == "train" else 0
    run(grid, tables())
    for line in lines_of(tmp_path / "run"):
        assert [(drop["client"], drop["reason"]) for drop in line["drops"]] == [
            (2, "its ClientApp has failed: <class 'ZeroDivisionError'>")
        ]


def test_a_client_that_has_lost_its_folder_is_told_of_the_run_again(tmp_path):
    grid = grid_of(tmp_path, grace=60.0)
    told = tables(FILE.replace("fedseq+scaffold", "fedseq"))
    recorder = server.host_of(grid, grid.settings, told).open()
    for number, _ in enumerate(recorder.run()):
        if number == 0:
            shutil.rmtree(tmp_path / "north")
    assert recorder.summary().params_sha256 == expected(told, tmp_path)


def test_unknown_names_and_names_that_come_twice_are_refused_with_the_reason(tmp_path, caplog):
    grid = grid_of(tmp_path)
    grid.configs |= {1: {"name": "nobody", "home": str(tmp_path / "nobody")}, 2: {}}
    grid.configs[3] = {"name": "east", "home": str(tmp_path / "twice")}
    _, recorder = run(grid, tables())
    text = caplog.text
    assert "node 1 does not take part: nobody: 'nobody' is no client of this run, which has east, north" in text
    assert "node 2 does not take part: who is this client? start its SuperNode with --node-config" in text
    assert "does not take part: another node takes part as 'east' already" in text
    assert recorder.summary().params_sha256 == expected(tables(), tmp_path)


def test_clients_bring_data_of_their_own(tmp_path):
    rng = np.random.default_rng(3)
    for name in NAMES:
        x = rng.normal(size=(30, 4))
        np.savez(tmp_path / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(int))
    grid = grid_of(tmp_path, beginning=1.0, **{"own-data": True, "test": str(tmp_path / "east.npz")})
    for node in grid.configs.values():
        node["data"] = str(tmp_path / f"{node['name']}.npz")
        node["policy"] = str(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text("rounds = 2\n", encoding="utf-8")
    _, recorder = run(
        grid, {**tables(FILE.replace("fedseq+scaffold", "fedavg").replace("groups = 2", "")), "rounds": 2}
    )
    assert recorder.summary().drops == 0
    told = json.loads((tmp_path / "north" / "sent.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert told["told"]["rows"] == 30


def test_a_client_whose_policy_refuses_the_run_is_named_with_the_reason(tmp_path, caplog):
    grid = grid_of(tmp_path)
    grid.configs[97]["policy"] = str(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text('methods = ["fedprox"]\n', encoding="utf-8")
    run(grid, tables())
    assert "does not take part: west: its policy does not allow the method fedseq (allowed: fedprox)" in caplog.text
    assert lines_of(tmp_path / "run")[-1]["clients"] == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clients": ""}, "the server must know its clients"),
        ({"clients": "a,a,b,c"}, "a is named twice"),
        ({"clients": "a,b"}, "[data] is split among 4 clients, and there are 2 names"),
        ({"resume": "yes"}, "run config: resume is 'yes', expected a bool"),
        ({"grace": "long"}, "run config: grace is 'long', expected a float"),
        ({"grace": -1}, "grace must be at least 0"),
        ({"round": 3}, "run config: unknown key 'round'"),
    ],
)
def test_a_run_config_that_cannot_be_is_refused(settings, says, tmp_path):
    grid = grid_of(tmp_path)
    grid.settings |= settings
    with pytest.raises(BadInput, match=says.replace("[", r"\[")):
        server.host_of(grid, grid.settings, tables()).open()


def test_more_simulated_nodes_than_clients_are_refused():
    with pytest.raises(BadInput, match="num-supernodes=2"):
        node_of({"partition-id": 2}, {"clients": "a,b"})


def test_parcels_come_out_as_they_went_in():
    parcel = Parcel(bytes(range(256)), run="ab", digest="cd")
    assert unpacked(packed(parcel)) == parcel
    with pytest.raises(ValueError, match="it has no"):
        unpacked(packed(parcel).__class__())


@pytest.mark.parametrize(("folder", "name"), [("my app", "my-app"), ("3", "app-3"), ("ä", "app"), ("x" * 60, "x" * 40)])
def test_an_app_has_a_name_that_flower_takes(folder, name):
    assert name_of(Path(folder)) == name


def test_the_folder_of_an_app_is_written_once(tmp_path, capsys):
    path = tmp_path / "e.toml"
    path.write_text(FILE, encoding="utf-8")
    words = ["flower", "init", str(path), str(tmp_path / "app"), "--clients", ",".join(NAMES)]
    assert main(words) == 0
    assert sorted(one.name for one in (tmp_path / "app").iterdir()) == [
        "README.md",
        "experiment.toml",
        "pyproject.toml",
    ]
    assert config.read(tmp_path / "app" / "experiment.toml") == tables()
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project["tool"]["flwr"]["app"]["config"]  # Flower lets nobody set what is not there
    assert {"deadline", "grace", "share", "resume", "test", "largest", "data-dir"} < set(settings)
    server.host_of(grid_of(tmp_path), settings, tables())
    assert main(words) == 2
    assert "is not empty: nothing is overwritten" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--clients", "a,b"], "[data] is split among 4 clients, and there are 2 names"),
        (["--clients", "a,b,c,d", "--set", "algorithm={ name = 'centralized' }"], "has no clients"),
        (["--clients", "a,a"], "a is named twice"),
        ([], "the server must know its clients"),
        (["--clients", "a,b,c,d", "--test", "x.csv"], "--own-data says so"),
        (["--clients", "a,b,c,d", "--set", "model.name=nothing"], "nothing"),
    ],
)
def test_an_app_that_could_not_run_is_not_written(more, says, tmp_path, capsys):
    path = tmp_path / "e.toml"
    path.write_text(FILE, encoding="utf-8")
    assert main(["flower", "init", str(path), str(tmp_path / "app"), *more]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "app").exists()


def test_without_the_extra_the_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    path = tmp_path / "e.toml"
    path.write_text(FILE, encoding="utf-8")
    assert main(["flower", "init", str(path), str(tmp_path / "app"), "--clients", "a,b,c,d"]) == 2
    assert 'pip install "fedrelay[flower]"' in capsys.readouterr().err


def test_clients_test_on_what_they_hold_out_over_flower_too(tmp_path):
    run(grid_of(tmp_path, beginning=1.0, **{"hold-out": 0.25}), tables())
    found = json.loads((tmp_path / "run" / "clients.json").read_text(encoding="utf-8"))["clients"]
    assert [client["name"] for client in found] == list(NAMES)
    assert all(client["tested"] == round(0.25 * (client["tested"] + client["examples"])) for client in found)
    assert "test_accuracy" in lines_of(tmp_path / "run")[-1]["over_clients"]
