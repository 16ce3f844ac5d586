"""What the report draws: pictures, the page, and the page in a real browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from invented_runs import line_of, many, rendered, run_folder

from fedrelay import report
from fedrelay.errors import BadInput
from fedrelay.report import figures, measures


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the text outside of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self._raw = [], "", 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._raw += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._raw -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._raw:
            self.text += data

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


# --- pictures


@pytest.mark.parametrize("count", [1, 12, 30])
def test_every_picture_is_one_that_plotly_accepts(tmp_path, count):
    runs = many(tmp_path, count)
    names = measures.labels(runs)
    for figure in (*figures.curves(runs, names), *figures.bars(runs, names)):
        go.Figure(figure.spec)  # refuses an unknown property or value


def test_a_run_has_one_look_in_every_picture_and_no_two_share_it(tmp_path):
    runs = many(tmp_path, 24)
    names = measures.labels(runs)
    looks = {}
    for figure in figures.curves(runs, names):
        for trace in figure.spec["data"]:
            looks.setdefault(trace["meta"], set()).add((trace["line"]["color"], trace["line"]["dash"]))
    assert all(len(look) == 1 for look in looks.values())
    assert len(set().union(*looks.values())) == 24
    for figure in figures.bars(runs, names):
        for trace in figure.spec["data"]:
            assert {trace["marker"]["color"]} == {colour for colour, _ in looks[trace["meta"]]}


def test_the_accuracy_curve_over_traffic_has_only_evaluated_rounds(tmp_path):
    runs = [report.load(run_folder(tmp_path / "run"))]
    trace = figures.curves(runs, ["run"])[1].spec["data"][0]
    assert trace["x"] == [1.0, 3.0, 4.0]  # kB
    assert trace["y"] == pytest.approx([20, 60, 90])


def test_an_axis_is_logarithmic_only_when_runs_are_far_apart(tmp_path):
    near = report.load(run_folder(tmp_path / "near", finished=False))
    far = report.load(run_folder(tmp_path / "far", [line_of(1, depth=300), line_of(2, depth=300)], finished=False))
    along = {figure.key: figure.spec["layout"]["xaxis"] for figure in figures.curves([near, far], ["near", "far"])}
    assert along["hops"]["type"] == "log"
    assert "type" not in along["traffic"]


def brightness(colour):
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_stands_out_from_the_light_and_the_dark_page():
    css = (Path(figures.__file__).parent / "template" / "page.css").read_text()
    cards = re.findall(r"--card: (#[0-9a-f]{6})", css)
    assert len(cards) == 2
    for card in cards:
        for colour in (*figures.COLOURS, figures.GREY):
            dark, light = sorted((brightness(card), brightness(colour)))
            assert (light + 0.05) / (dark + 0.05) >= 3


# --- the page


@pytest.mark.parametrize("count", [1, 12])
def test_the_page_fetches_nothing_and_holds_plotly_once(tmp_path, count):
    page = report.html(many(tmp_path, count))
    tags = Tags(page)
    assert not [attrs for _, attrs in tags.tags if {"src", "href", "srcset", "action"} & attrs.keys()]
    assert not tags.named("link")
    assert len(tags.named("script")) == 4  # static pictures, the numbers of curves, Plotly, and what draws
    packed = re.findall(r'id="plotly">(.*?)</script>', page, re.S)
    assert [gzip.decompress(base64.b64decode(one)).count(b"plotly.js (cartesian") for one in packed] == [1]
    policy = next(attrs["content"] for attrs in tags.named("meta") if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page[: page.index('id="specs"')]


def test_what_comes_from_files_is_text_and_never_markup(tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    lines = [line_of(1, drops=[{"client": 1, "hop": 0, "chain": 0, "reason": "</script><script>alert(2)</script>"}])]
    runs = [report.load(run_folder(tmp_path / evil, lines, extra="note = '<b>&\"x\"</b>'\n"))]
    page = report.html(runs)
    tags = Tags(page)
    assert not tags.named("img")
    assert not tags.named("b")
    assert len(tags.named("script")) == 4
    assert evil in tags.text
    assert "</script><script>alert(2)</script>" in tags.text
    (part,) = json.loads(re.search(r'id="parts">(.*?)</script>', page, re.S)[1])
    # Plotly reads a little HTML in names, links among it.
    assert "<" not in part["runs"][0]["label"]


def test_the_page_shows_the_comparison_the_drops_and_the_configuration(tmp_path):
    lines = [line_of(1, drops=[{"client": 7, "hop": 0, "chain": 0, "reason": "battery empty"}]), line_of(2)]
    going = report.load(run_folder(tmp_path / "slow", lines, algorithm="fedavg", finished=False))
    text = Tags(report.html([report.load(run_folder(tmp_path / "quick")), going])).text
    for expected in (
        "quick",
        "slow",
        "not finished: round 2 of 4",
        "battery empty",
        "algorithm.name",
        "4.0 kB",
        "Not finished",
    ):
        assert expected in text


def test_a_page_without_drops_has_no_section_for_them(tmp_path):
    assert "Dropped clients" not in report.html([report.load(run_folder(tmp_path / "run"))])


def test_a_run_before_its_first_round_has_a_page(tmp_path):
    run = report.load(run_folder(tmp_path / "new", [], finished=False))
    assert "No round has been evaluated yet" in report.html([run])
    assert "new" in rendered(report.table([run]))


def test_a_page_of_no_runs_is_refused():
    with pytest.raises(BadInput, match="at least one run"):
        report.html([])


def test_writing_makes_the_folder_and_leaves_only_the_page(tmp_path):
    folder = run_folder(tmp_path / "run")
    out = report.write([folder, folder], tmp_path / "new" / "report.html")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert len([attrs for attrs in Tags(out.read_text()).named("button") if "data-run" in attrs]) == 1


def test_a_folder_without_a_run_leaves_the_old_page_as_it_was(tmp_path):
    out = tmp_path / "report.html"
    out.write_text("the old page")
    with pytest.raises(BadInput, match="nowhere is not a run folder"):
        report.write([tmp_path / "nowhere"], out)
    assert out.read_text() == "the old page"


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    folder = run_folder(tmp_path / "run")
    with pytest.raises(BadInput, match="is a folder: name a file"):
        report.write([folder], tmp_path)
    with pytest.raises(BadInput, match="cannot be written"):
        report.write([folder], folder / "config.toml" / "report.html")


def test_a_page_offers_means_over_fewer_rounds_than_there_are(tmp_path):
    def offered(rounds):
        lines = [line_of(number) for number in range(1, rounds + 1)]
        page = report.html([report.load(run_folder(tmp_path / f"of{rounds}", lines))])
        return [int(value) for value in re.findall(r'<option value="(\d+)"', page)]

    assert offered(4) == [1, 5]  # runs are judged by means over 5 rounds
    assert offered(51) == [1, 5, 10, 25, 50]


def test_plotly_is_the_bundle_that_its_authors_publish():
    """As plotly.js-cartesian-dist-min 4.1.1 has it; `go.Figure` of the tests knows the same version."""
    content = gzip.decompress((Path(figures.__file__).parent / "plotly" / "plotly-cartesian.min.js.gz").read_bytes())
    expected = "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
    assert hashlib.sha256(content).hexdigest() == expected
    assert b"v4.1.1" in content[:100]


@pytest.mark.parametrize(("runs", "rounds"), [(3, 4), (40, 1500)])
def test_a_page_is_under_three_megabytes(tmp_path, runs, rounds):
    lines = [line_of(i, (i % 97) / 97, loss=1 / (i + 0.123456789), train_loss=1 / 7 / i) for i in range(1, rounds + 1)]
    run = report.load(run_folder(tmp_path / "run", lines, rounds=rounds))
    page = report.html([replace(run, folder=tmp_path / f"run{number}") for number in range(runs)])
    assert len(page.encode()) < (3_000_000 if runs > 3 else 900_000)
    assert ("points one is drawn" in page) == (runs > 3)
