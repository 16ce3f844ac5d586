"""What runs found, as tidy frames and in a notebook."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from invented_runs import HOSPITALS, judged_folder, line_of, run_folder

import fedrelay as fr
from fedrelay.errors import BadInput


class Page(HTMLParser):
    """The tags of a piece of HTML, the words between them, and which tags were left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [tag] if tag != "img" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def shown(thing: object) -> Page:
    page = Page(thing._repr_html_())
    assert not page.open
    return page


@pytest.fixture
def comparison(tmp_path):
    """Two runs with two seeds, one of them with clients; a third that has not ended."""
    folder = tmp_path / "compared"
    for seed in (0, 1):
        judged_folder(folder / "chains" / f"seed-{seed}", HOSPITALS)
        lines = [line_of(number, 0.1 * number + 0.05 * seed) for number in (1, 2, 3)]
        run_folder(folder / "<b>star" / f"seed-{seed}", lines, algorithm="fedavg", final_accuracy=0.3 + 0.05 * seed)
    config = folder / "chains" / "seed-1" / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    run_folder(folder / "going", finished=False)
    return folder


def test_every_round_says_its_run_method_and_seed_and_what_had_been_sent(comparison):
    rounds = fr.results(comparison).rounds
    assert len(rounds) == 2 * 4 + 2 * 3 + 4
    one = rounds[(rounds["run"] == "chains") & (rounds["seed"] == 1)]
    assert one["method"].unique().tolist() == ["fedseq"]
    assert one["accuracy"].tolist() == pytest.approx([0.2, np.nan, 0.6, 0.9], nan_ok=True)
    assert one["bytes"].tolist() == [1000] * 4
    assert one["bytes_so_far"].tolist() == [1000, 2000, 3000, 4000]
    assert one["hops_so_far"].tolist() == [3, 6, 9, 12]
    assert all(rounds[name].dtype.kind in "if" for name in ("accuracy", "loss", "train_loss", "bytes", "seed"))


def test_every_run_and_seed_is_a_row_also_before_it_ends(comparison):
    found = fr.results(comparison).summaries
    assert sorted(found["run"]) == ["<b>star", "<b>star", "chains", "chains", "going"]
    ended = found[found["finished"]]
    assert ended[ended["run"] == "chains"]["rounds_to_0.9"].tolist() == [4, 4]
    assert ended[ended["run"] == "chains"]["bytes_to_0.7"].tolist() == [3000, 3000]
    going = found[found["run"] == "going"].iloc[0]
    assert (going["rounds"], going["bytes"]) == (4, 4000)
    assert np.isnan(going["final"])


def test_every_client_is_a_row_with_its_run_and_seed(comparison):
    clients = fr.results(comparison).clients
    assert len(clients) == 6
    assert clients.groupby("name")["accuracy"].mean().to_dict() == HOSPITALS


def test_folders_of_runs_and_of_comparisons_go_together_and_count_once(comparison, tmp_path):
    alone = run_folder(tmp_path / "alone")
    found = fr.results(alone, comparison, comparison / "chains" / "seed-0")
    assert len(found.runs) == 6
    assert repr(found) == "Results of 6 runs: alone, <b>star, chains, going"


def test_where_there_is_no_run_the_folder_is_named(tmp_path):
    with pytest.raises(BadInput, match=f"no run in {re.escape(str(tmp_path.resolve()))}"):
        fr.results(tmp_path)
    with pytest.raises(BadInput, match="which runs"):
        fr.results()
    with pytest.raises(BadInput, match="nowhere is not a run folder"):
        fr.results(tmp_path / "nowhere")


def test_a_notebook_shows_means_over_seeds_and_curves_and_no_tag_of_a_name(comparison):
    page = shown(fr.results(comparison))
    assert page.tags.count("b") == 1  # the heading; a run's name is words
    assert "<b>star" in page.words
    assert "32.5 % ± 3.5 %" in page.words  # of 0.3 and 0.35
    assert "not finished" in page.words
    assert page.tags.count("polyline") == 3


def test_a_notebook_shows_a_summary_and_an_experiment(tmp_path):
    tables = {
        "rounds": 2,
        "engine": {"name": "inline"},
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "logistic"},
    }
    experiment = fr.config.build(tables | {"algorithm": {"name": "fedavg"}})
    assert {"[data]", "[algorithm]", "rounds", "2"} <= set(shown(experiment).words)
    recorder = experiment.record(tmp_path / "run")
    list(recorder.run())
    summary = recorder.summary()
    words = shown(summary).words
    assert "Summary of fedavg" in words
    assert f"{summary.bytes['total'] / 1e6:,.1f} MB in {summary.messages['total']} messages" in words
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert f"{100 * kept['mean']:.1f} %" in words


def test_a_notebook_shows_a_federation_with_its_label_mix_where_there_are_classes():
    x, y = np.zeros((6, 2), dtype="float32"), np.array([0, 1, 1, 0, 1, 0])
    page = shown(
        fr.data.from_arrays({"<i>north": (x, y), "south": (x[:4], y[:4])}, test=(x, y), class_names=("no", "<yes>"))
    )
    assert page.tags.count("img") == 1
    assert "10 to train on, 6 to test on" in page.words
    numbers = fr.Federation.split(fr.data.diabetes(), fr.data.Iid(), 3)
    assert "img" not in shown(numbers).tags
