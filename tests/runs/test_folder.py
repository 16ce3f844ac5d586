"""The files of a run folder: what is written can be read, and what is damaged is refused by file, line and key."""

from __future__ import annotations

import json
import os

import pytest
from needs import posix

from fedrelay import BadInput
from fedrelay.runs.folder import read_config, read_summary
from fedrelay.runs.log import Dropped, RoundLog, Undescribed
from fedrelay.runs.results import read_clients, read_quality
from fedrelay.runs.rounds import read_rounds

SPLIT = {"server_to_client": 1, "client_to_server": 2, "client_to_client": 3}
LINE = {
    "round": 1,
    "clients": 2,
    "chains": 2,
    "depth": 1,
    "examples": 20,
    "seconds": 0.5,
    "messages": SPLIT,
    "bytes": SPLIT,
}
SUMMARY = {
    "algorithm": "fedavg",
    "rounds": 1,
    "accuracy": 0.5,
    "best_accuracy": 0.5,
    "final_accuracy": 0.5,
    "target": 1.0,
    "messages": {**SPLIT, "total": 6},
    "bytes": {**SPLIT, "total": 6},
    "examples": 20,
    "seconds": 0.5,
    "examples_per_second": 40.0,
    "drops": 0,
    "params_sha256": "00",
}
DROP = {"client": 3, "chain": 0, "hop": 1, "reason": "lost"}


def rounds_of(tmp_path, **changed) -> list[RoundLog]:
    path = tmp_path / "rounds.jsonl"
    path.write_text(json.dumps({**LINE, **changed}) + "\n", encoding="utf-8")
    return read_rounds(path)


def summary_of(tmp_path, **changed):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({**SUMMARY, **changed}), encoding="utf-8")
    return read_summary(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"round": 2}, "round should be 1, found 2"),
        ({"clients": None}, "clients should be a number, found null"),
        ({"examples": True}, "examples should be a number, found true"),
        ({"examples": 10**400}, "examples should be a number"),
        ({"seconds": float("nan")}, "seconds should be a number, found null"),
        ({"groups": None}, "groups should be a number"),
        ({"visits": "2"}, 'visits should be a number, found "2"'),
        ({"train_loss": "low"}, "train_loss should be a number"),
        ({"simulated_seconds": []}, "simulated_seconds should be a number"),
        ({"messages": {"server_to_client": 1}}, "messages should have the numbers server_to_client, client_to_server"),
        ({"bytes": {**SPLIT, "client_to_client": "3"}}, "bytes should have the numbers"),
        ({"relayed": {"messages": 1}}, "relayed should say messages and bytes"),
        ({"relayed": {"messages": "1", "bytes": 1}}, "relayed should say messages and bytes"),
        ({"describing": {"messages": [1], "bytes": 1}}, "describing should say messages and bytes"),
        ({"sampling": {"distinct": "8"}}, "sampling should hold numbers"),
        ({"sampling": None}, "sampling should hold numbers"),
        ({"accuracy": "half"}, "metrics should hold numbers"),
        ({"metrics": {"f1": "half"}}, "metrics should hold numbers"),
        ({"metrics": [0.5]}, "metrics should be numbers by name"),
        ({"drops": None}, "drops should be a list, found null"),
        ({"drops": [{**DROP, "hop": None}]}, "drops should say client, chain, hop and reason"),
        ({"drops": [{**DROP, "reason": 3}]}, "drops should say client, chain, hop and reason"),
        ({"undescribed": [{"client": 3}]}, "undescribed should say client and reason"),
        ({"over_clients": {"train_loss": "low"}}, "over_clients should hold numbers"),
    ],
)
def test_a_line_that_no_round_wrote_is_refused_with_its_key(tmp_path, changed, message):
    with pytest.raises(BadInput, match=rf"rounds\.jsonl, line 1, is damaged \({message}"):
        rounds_of(tmp_path, **changed)


def test_a_line_that_lacks_a_key_is_refused_unless_older_versions_did_not_write_it(tmp_path):
    (log,) = rounds_of(tmp_path)
    assert (log.groups, log.visits) == (2, 2)  # one chain for every group, one visit for every client
    assert (log.relayed, log.describing) == ({"messages": 0, "bytes": 0},) * 2
    assert (log.metrics, log.accuracy, log.loss, log.drops) == ({}, None, None, ())
    path = tmp_path / "rounds.jsonl"
    for key in LINE:
        path.write_text(json.dumps({name: value for name, value in LINE.items() if name != key}) + "\n")
        with pytest.raises(BadInput, match=rf"\({key} should"):
            read_rounds(path)


def test_what_is_more_than_we_know_is_passed_over(tmp_path):
    drops = [{**DROP, "battery": 0.1}]
    (log,) = rounds_of(tmp_path, drops=drops, undescribed=[{"client": 4, "reason": "silent"}], weather="fair")
    assert log.drops == (Dropped(3, 0, 1, "lost"),)
    assert log.undescribed == (Undescribed(4, "silent"),)
    assert summary_of(tmp_path, weather="fair").rounds == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"algorithm": None}, "algorithm should be a text"),
        ({"rounds": "1"}, "rounds should be a number"),
        ({"drops": []}, "drops should be a number"),
        ({"target": "high"}, "target should be a number"),
        ({"jump": {}}, "jump should be a number"),
        ({"messages": SPLIT}, "messages should have the numbers .*total"),
        ({"rounds_to": {"most": 3}}, "rounds_to should map shares of the target to numbers"),
        ({"rounds_to": {"nan": 3}}, "rounds_to should map shares"),
        ({"rounds_to": {"0": 3}}, "rounds_to should map shares"),
        ({"traffic_to": {"0.7": "3"}}, "traffic_to should map shares"),
        ({"time_to": None}, "time_to should map shares"),
        ({"relayed": {"messages": "1", "bytes": 1}}, "relayed should say messages and bytes"),
        ({"estimates": {"traffic": "much"}}, "estimates should hold numbers"),
        ({"estimates_to": {"traffic_bytes": {"0.7": "much"}}}, "estimates_to.traffic_bytes should map shares"),
        ({"estimates_to": []}, "estimates_to should hold numbers by name and share"),
        ({"mean_loss": "low"}, "mean_loss should be a number"),
        ({"params_sha256": 0}, "params_sha256 should be a text"),
    ],
)
def test_a_summary_that_no_run_wrote_is_refused_with_its_key(tmp_path, changed, message):
    with pytest.raises(BadInput, match=rf"summary\.json is damaged \({message}.*delete it and run with --resume"):
        summary_of(tmp_path, **changed)


def test_a_summary_of_before_there_was_a_clock_has_none(tmp_path):
    found = summary_of(tmp_path)
    assert (found.final_loss, found.jump, found.parallelism, found.simulated_seconds) == (None,) * 4
    assert (found.rounds_to, found.traffic_to, found.time_to, found.estimates) == ({},) * 4
    assert (found.mean_loss, found.estimates_to, found.over_clients) == (None, {}, {})
    assert (found.relayed, found.describing, found.depth) == (*({"messages": 0, "bytes": 0},) * 2, 0)


def test_a_summary_that_lacks_a_key_that_every_version_wrote_is_refused(tmp_path):
    path = tmp_path / "summary.json"
    for key in ("best_accuracy", "target", "examples_per_second"):  # null is allowed there, but not nothing
        path.write_text(json.dumps({name: value for name, value in SUMMARY.items() if name != key}))
        with pytest.raises(BadInput, match=rf"summary\.json is damaged \({key} should be there"):
            read_summary(path)


CLIENT = {"client": 0, "name": "a", "examples": 5, "tested": 2, "metrics": {"accuracy": 0.5}}


@pytest.mark.parametrize("changed", [{"metrics": "x"}, {"metrics": {"accuracy": "x"}}, {"client": "0"}, {"name": 3}])
def test_figures_of_clients_that_no_run_wrote_are_refused(tmp_path, changed):
    found = {"headline": "accuracy", "higher_is_better": True, "clients": [{**CLIENT, **changed}]}
    (tmp_path / "clients.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=r"clients\.json is damaged \(.*should"):
        read_clients(tmp_path)


@pytest.mark.parametrize("found", [[], {}, {"classes": 3, "confusion": [], "calibration": None}, {"calibration": 1}])
def test_a_confusion_that_no_run_wrote_is_refused(tmp_path, found):
    (tmp_path / "quality.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=r"quality\.json is damaged"):
        read_quality(tmp_path)


@posix
@pytest.mark.parametrize("reader", [read_summary, read_rounds, read_config])
def test_a_device_in_the_place_of_a_file_is_not_read(tmp_path, reader):
    """Some never end, and who opens a pipe waits for ever."""
    (tmp_path / "planted").symlink_to(os.devnull)
    with pytest.raises(BadInput, match="planted is not a plain file"):
        reader(tmp_path / "planted")
