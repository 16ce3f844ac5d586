"""Distances of an attacker's images in a run folder, what they are beside, and two runs at equal accuracy."""

from __future__ import annotations

import json

import pytest
import torch

from fedrelay import BadInput, cli, config
from fedrelay.studies.recovery import measure as measuring
from fedrelay.studies.recovery import networks, page
from fedrelay.studies.recovery.measure import (
    OTHERS,
    OWN_IMAGES,
    Measured,
    Near,
    Point,
    as_record,
    at_accuracy,
    common_accuracy,
    figures_at,
    from_record,
    measure,
)

TABLES = {
    "rounds": 3,
    "data": {"name": "digits", "clients": 10, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "small_cnn", "channels": [2]},
    "local": {"lr": 0.2, "batch": 16},
    "algorithm": {"name": "fedavg", "fraction": 1.0},
    "evaluate": {"every": 1},
    "engine": {"name": "inline"},
    "attack": {
        "name": "recovery",
        "epochs": 1,
        "width": 1,
        "images": 60,
        "every": 2,
        "output": "pixels",
        "who": {"name": "clients", "clients": [4]},
    },
}


def done(folder, tables=TABLES):
    for _ in config.build(tables).record(folder).run():
        pass
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return done(tmp_path_factory.mktemp("recovery") / "run")


@pytest.fixture(scope="module")
def found(run):
    return measure(run, networks.chosen("pixels"), images=50)


def test_every_set_of_images_has_a_distance_and_the_accuracy_of_the_model_before(run, found):
    accuracies = [json.loads(line)["accuracy"] for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [(point.kind, point.client, point.round) for point in found.points] == [
        ("received", 4, 1),
        ("received", 4, 3),
    ]
    assert [point.accuracy for point in found.points] == [None, accuracies[1]]
    assert [point.visits for point in found.points] == [1, 3]
    assert (found.images, found.features, found.notes) == (50, 16, ())


def test_other_clients_images_are_near_and_the_attackers_own_of_one_class_are_not(found):
    beside = {one.kind: one for one in found.beside}
    assert set(beside) == {OTHERS, OWN_IMAGES}
    assert abs(beside[OTHERS].kid) < 0.1 * beside[OWN_IMAGES].kid
    assert beside[OTHERS].fid < 0.5 * beside[OWN_IMAGES].fid
    assert all(point.fid > beside[OTHERS].fid for point in found.points)  # an untrained generator makes no digits


def test_real_images_are_shown_as_the_attackers_are_kept():
    federation = config.build({**TABLES, "rounds": 1}).federation
    rows = torch.arange(3)
    x, _ = federation.source.train.take(rows)
    pixels = measuring.shown(federation, rows, "pixels").float()
    assert torch.corrcoef(torch.stack((pixels.flatten(), x.flatten())))[0, 1] > 0.9999
    whole = measuring.shown(federation, rows, "tanh").flatten(1)
    assert whole.amin(1).tolist() == [0, 0, 0]
    assert whole.amax(1).tolist() == [255, 255, 255]


def test_none_of_the_attackers_own_images_are_among_the_others():
    federation = config.build({**TABLES, "rounds": 1}).federation
    others = measuring.rows_of_others(federation, 4, 0)
    assert not set(others.tolist()) & set(federation.client(4).rows.tolist())
    assert len(others) == len(federation.order) - federation.client(4).size


def test_few_images_are_said_to_be_few(run):
    noted = measure(run, networks.chosen("pixels"), images=10)
    assert "10 images by 16 features" in noted.notes[0]


def points(*values):
    """Of accuracy, FID and KID; every one after two visits more."""
    return tuple(Point("received", 0, number, *value, 2 * number) for number, value in enumerate(values, 1))


STEEP = Measured("n", 9, 2, points((None, 90.0, 9.0), (0.2, 50.0, 5.0), (0.6, 30.0, 1.0)))
SHORT = Measured("n", 9, 2, points((0.1, 80.0, 8.0), (0.5, 20.0, 2.0)))


def test_two_runs_are_compared_at_the_highest_accuracy_that_both_have():
    assert common_accuracy([STEEP, SHORT]) == 0.5
    near = at_accuracy(STEEP.points, 0.5)  # three quarters of the way
    assert (near.fid, near.kid, near.visits) == pytest.approx((35.0, 2.0, 5.5))
    assert at_accuracy(SHORT.points, 0.5) == Near(20.0, 2.0, 4)
    assert at_accuracy(SHORT.points, 0.6) is None
    assert figures_at(STEEP, 0.5) == pytest.approx(
        {"accuracy": 0.5, "visits": 5.5, "fid_received": 35.0, "kid_received": 2.0}
    )


def test_runs_that_never_had_the_same_accuracy_are_not_compared():
    late = Measured("n", 9, 2, points((0.7, 1.0, 1.0), (0.9, 1.0, 1.0)))
    untested = Measured("n", 9, 2, points((None, 1.0, 1.0)))
    assert common_accuracy([SHORT, late]) is None
    assert common_accuracy([SHORT, untested]) is None
    assert figures_at(SHORT, None) == {"accuracy": None, "visits": None, "fid_received": None, "kid_received": None}


def test_the_attack_is_drawn_as_a_line_and_its_controls_as_others_whatever_they_are_called():
    kinds = ("else", "random", "received")
    several = Measured("n", 9, 2, tuple(Point(kind, 0, 1, 0.5, 1.0, 1.0, 1) for kind in kinds))
    drawn = {trace["name"]: trace["line"]["dash"] for trace in page.lines({"run": several}, "fid")["data"]}
    assert drawn == {"run, received": "solid", "run, random": "dash", "run, else": "dot"}


def test_what_was_measured_comes_back_from_plain_data(found):
    assert from_record(json.loads(json.dumps(as_record(found)))) == found


def test_a_run_without_an_attack_is_refused_in_one_line(tmp_path, capsys):
    honest = done(tmp_path / "honest", {key: value for key, value in TABLES.items() if key != "attack"} | {"rounds": 1})
    with pytest.raises(BadInput, match="has no images of an attacker: a run makes some with"):
        measure(honest, networks.chosen("pixels"))
    assert cli.main(["recovery", str(honest), "--features", "pixels", "--out", str(tmp_path / "page.html")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_the_command_writes_a_page_and_prints_the_distances(run, found, tmp_path, capsys):
    out = tmp_path / "page.html"
    given = ["recovery", str(run), "--features", "pixels", "--images", "50", "--out", str(out)]
    assert cli.main([*given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert from_record(printed["run"]) == found
    text = out.read_text(encoding="utf-8")
    assert "Images that client 4 has made" in text
    assert "50 images of each kind, 16 features by no network" in text
    assert cli.main(given) == 2  # nothing is overwritten
    assert cli.main([*given, "--force"]) == 0
    printed = capsys.readouterr().out
    assert f"{found.points[-1].fid:.4g}" in printed
    assert f"Wrote {out}" in printed.replace("\n", "")
