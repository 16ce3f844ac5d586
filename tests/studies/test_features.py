"""The features of test examples in the plane: what is drawn, that it is the same every time, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import tomli_w
import torch

from fedrelay import BadInput, cli, config, load_model
from fedrelay.report.scatter import Cloud, cloud_figure, clouds_svg
from fedrelay.studies.features import draw, in_the_plane, nearest, place

TABLES = {
    "rounds": 2,
    "data": {"name": "digits", "clients": 4, "client_tests": 0.2},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16, "lr": 0.3},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "inline"},
}


def finished(folder: Path, **changes) -> Path:
    for _ in config.build(TABLES | changes).record(folder).run():
        pass
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return finished(tmp_path_factory.mktemp("features") / "run")


def blobs(count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds so far apart that no point of one is near another."""
    kinds = np.repeat(np.arange(3), count)
    around = np.random.default_rng(0).normal(size=(3 * count, 5))
    return (around + 100 * np.eye(5)[kinds]).astype(np.float32), kinds


def test_what_is_near_among_features_is_near_in_the_plane():
    features, kinds = blobs()
    places = in_the_plane(features, 10.0, seed=0)
    assert places.shape == (90, 2)
    assert (kinds[nearest(places)] == kinds).all()
    centres = np.stack([places[kinds == kind].mean(0) for kind in range(3)])
    widest = max(np.linalg.norm(places[kinds == kind] - centres[kind], axis=1).max() for kind in range(3))
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > widest


def test_the_same_seed_gives_the_same_picture_and_another_seed_another():
    features, _ = blobs(10)
    first = in_the_plane(features, 30.0, seed=1)
    assert (in_the_plane(features, 30.0, seed=1) == first).all()
    one_number = in_the_plane(features[:, :1], 5.0, seed=1)  # no second principal component to begin from
    assert np.isfinite(one_number).all()
    assert (in_the_plane(features[:, :1], 5.0, seed=2) != one_number).any()


def test_the_nearest_example_is_another_one():
    points = np.array([[0.0], [1.0], [3.0], [3.5]], dtype=np.float32)
    assert nearest(points).tolist() == [1, 0, 3, 2]


def test_labels_clients_and_answers_are_those_of_the_run(run):
    placed = place(run, points=60)
    federation = config.build(TABLES).federation
    assert (len(placed.labels), placed.of) == (60, len(federation.test_order))
    everything = place(run, points=10_000)
    rows = federation.test_order.numpy()
    assert everything.labels.tolist() == federation.test.labels[rows].tolist()
    starts = federation.test_starts.tolist()
    for client in range(4):
        assert (everything.clients[starts[client] : starts[client + 1]] == client).all()
    assert everything.client_names == federation.names
    with torch.no_grad():
        answers = load_model(run)(federation.evaluated.take(slice(0, len(rows)))[0]).argmax(1).numpy()
    assert (everything.right == (answers == everything.labels)).all()
    accuracy = json.loads((run / "summary.json").read_text())["final_accuracy"]
    assert everything.right.mean() == pytest.approx(accuracy)


def test_neighbours_are_reckoned_on_the_features_of_the_body(run):
    placed = place(run, points=10_000)
    with torch.no_grad():
        features = load_model(run).body(config.build(TABLES).federation.evaluated.take(slice(0, placed.of))[0])
    apart = torch.cdist(features.double(), features.double()).fill_diagonal_(torch.inf)
    assert placed.alike.mean() == pytest.approx((placed.labels[apart.argmin(1).numpy()] == placed.labels).mean())


def test_without_test_parts_of_clients_it_is_not_known_whose_examples_they_are(tmp_path):
    data = {"name": "digits", "clients": 4}
    placed = place(finished(tmp_path / "run", data=data, rounds=1), points=20)
    assert placed.clients is None
    assert placed.of == len(config.build(TABLES | {"data": data}).federation.test)


def specs(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="specs">(.*?)</script>', page, re.S)[1])


def test_the_page_has_every_point_by_class_and_by_client(run, tmp_path):
    (placed,) = draw([run, run], tmp_path / "deep" / "page.html", points=50)
    page = (tmp_path / "deep" / "page.html").read_text()
    found = specs(page)
    assert len(found) == 2
    by_class, by_client = (
        {trace["name"]: len(trace["x"]) for trace in found[key]["data"]} for key in ("cloud0", "cloud1")
    )
    assert by_class == {str(label): int((placed.labels == label).sum()) for label in np.unique(placed.labels)}
    assert by_client == {f"client {client}": int((placed.clients == client).sum()) for client in range(4)}
    assert "run: 50 of" in page
    assert f"{placed.alike.mean():.1%}".replace("%", " %") in page


def test_several_runs_have_pictures_and_columns_of_their_own(run, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    draw([run, tmp_path / "other"], tmp_path / "page.html", points=20)
    page = (tmp_path / "page.html").read_text()
    assert list(specs(page)) == ["cloud0", "cloud1", "cloud2", "cloud3"]
    assert "other: nearest of the same class" in page


def test_the_picture_has_a_dot_for_every_point_and_every_name(run, tmp_path):
    draw([run], tmp_path / "picture.svg", points=40)
    text = (tmp_path / "picture.svg").read_text()
    assert text.count('r="2.5"') == 2 * 40
    assert "client 3" in text
    again = tmp_path / "again.svg"
    draw([run], again, points=40)
    assert again.read_text() == text


def test_names_are_text_in_page_and_picture_whatever_they_contain():
    cloud = Cloud("<b>", np.zeros((2, 2), np.float32), np.array([0, 1]), ("<script>", "&"))
    assert "<script>" not in clouds_svg([cloud])
    figure = cloud_figure("key", cloud, "caption")
    assert [trace["name"] for trace in figure.spec["data"]] == ["&lt;script&gt;", "&amp;"]
    go.Figure(figure.spec)


def test_many_kinds_have_no_list_and_no_two_neighbours_look_the_same():
    kinds = np.arange(50)
    cloud = Cloud("many", np.stack([kinds, kinds], 1).astype(np.float32), kinds, tuple(map(str, kinds)))
    spec = cloud_figure("key", cloud, "caption").spec
    assert not spec["layout"]["showlegend"]
    assert len({(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in spec["data"]}) == 50
    assert "<text" in clouds_svg([cloud])  # the title alone
    assert clouds_svg([cloud]).count("<text") == 1


# --- what is refused


def refused(arguments: list[str], capsys) -> str:
    assert cli.main(["features", *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return " ".join(said.split())


def test_a_file_that_is_there_is_left_alone_unless_one_insists(run, tmp_path, capsys):
    out = tmp_path / "page.html"
    out.write_text("mine")
    assert "add --force" in refused([str(run), "--out", str(out)], capsys)
    assert out.read_text() == "mine"
    assert cli.main(["features", str(run), "--out", str(out), "--force", "--points", "20"]) == 0
    assert len(specs(out.read_text())) == 2
    assert "20 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "page.pdf"], "a name that ends in .html or .svg"),
        (["--points", "2"], "points must be at least 5"),
        (["--perplexity", "0"], "perplexity must be above 0"),
        (["--client", "nobody"], "has no model of client 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused(run, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused([str(run), *arguments], capsys)
    assert not list(tmp_path.iterdir())


def test_folders_and_unfinished_runs_are_refused(run, tmp_path, capsys):
    assert "is not a run folder" in refused([str(tmp_path / "none")], capsys)
    (tmp_path / "folder.html").mkdir()
    assert "is a folder" in refused([str(run), "--out", str(tmp_path / "folder.html")], capsys)
    shutil.copytree(run, tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    assert "is not finished" in refused([str(tmp_path / "half"), "--out", str(tmp_path / "a.html")], capsys)


def test_models_that_vote_have_no_features_in_common(run, tmp_path):
    shutil.copytree(run, tmp_path / "vote")
    facts = json.loads((run / "model.json").read_text()) | {"predicts": "ensemble", "models": 2}
    (tmp_path / "vote" / "model.json").write_text(json.dumps(facts))
    with pytest.raises(BadInput, match="predicts by several models"):
        place(tmp_path / "vote")


def test_a_run_made_in_python_has_no_data_in_its_folder(run, tmp_path):
    shutil.copytree(run, tmp_path / "python")
    tables = tomllib.loads((run / "config.toml").read_text())
    (tmp_path / "python" / "config.toml").write_text(tomli_w.dumps(tables | {"data": {"clients": 4}}))
    with pytest.raises(BadInput, match="was made in Python"):
        place(tmp_path / "python")


def test_numbers_have_no_classes_to_draw(tmp_path):
    numbers = {
        "data": {"name": "diabetes", "clients": 4},
        "model": {"name": "logistic"},
        "local": {"lr": 0.01},
        "rounds": 1,
    }
    with pytest.raises(BadInput, match="do not have one class each"):
        place(finished(tmp_path / "run", **numbers))


def test_a_model_without_body_and_head_has_no_features(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fedrelay.runs.output.Trained.network", lambda self, client=None: torch.nn.Linear(2, 2))
    with pytest.raises(BadInput, match="Linear has no body and head"):
        place(run)


def test_features_that_are_all_alike_or_not_finite_are_refused(run, tmp_path):
    for name, value, message in (("dead", 0.0, "the same features"), ("wild", float("nan"), "not finite")):
        shutil.copytree(run, tmp_path / name)
        weights = torch.load(run / "model.pt", weights_only=True)
        body = {key: torch.full_like(each, value) for key, each in weights.items() if key.startswith("body")}
        torch.save(weights | body, tmp_path / name / "model.pt")
        with pytest.raises(BadInput, match=message):
            place(tmp_path / name, points=20)
