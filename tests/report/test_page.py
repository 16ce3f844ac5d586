"""What the report draws: pictures, the page, and the page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from invented_runs import line_of, many, rendered, run_folder
from needs import lacking

from fedrelay import report
from fedrelay.errors import BadInput
from fedrelay.report import figures, measures

BROWSERS = [
    *("chromium", "chromium-browser", "google-chrome", "chrome"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


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
    assert len(tags.named("script")) == 3  # the numbers, Plotly, and what draws
    assert page.count("plotly.js v") == 1
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
    assert len(tags.named("script")) == 3
    assert evil in tags.text
    assert "</script><script>alert(2)</script>" in tags.text
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    # Plotly reads a little HTML in names, links among it.
    assert "<" not in specs["rounds"]["data"][0]["name"]


def test_the_page_shows_the_comparison_the_drops_and_the_configuration(tmp_path):
    lines = [line_of(1, drops=[{"client": 7, "hop": 0, "chain": 0, "reason": "battery empty"}]), line_of(2)]
    going = report.load(run_folder(tmp_path / "slow", lines, algorithm="fedavg", finished=False))
    text = Tags(report.html([report.load(run_folder(tmp_path / "quick")), going])).text
    for expected in ("quick", "slow", "still going", "battery empty", "algorithm.name", "4.0 kB", "Not finished"):
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


def test_a_bad_folder_leaves_the_old_page_as_it_was(tmp_path):
    out = tmp_path / "report.html"
    out.write_text("the old page")
    with pytest.raises(BadInput):
        report.write([run_folder(tmp_path / "run"), tmp_path / "nowhere"], out)
    assert out.read_text() == "the old page"


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    folder = run_folder(tmp_path / "run")
    with pytest.raises(BadInput, match="is a folder: name a file"):
        report.write([folder], tmp_path)
    with pytest.raises(BadInput, match="cannot be written"):
        report.write([folder], folder / "config.toml" / "report.html")


# --- a real browser


def test_a_real_browser_draws_every_picture(tmp_path):
    if BROWSER is None:
        lacking("there is no Chromium or Chrome on this machine")
    out = report.write([run_folder(tmp_path / f"run{i}") for i in range(2)], tmp_path / "report.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += ["--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([BROWSER, *flags, out.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    drawn = [attrs for attrs in Tags(done.stdout).named("div") if "js-plotly-plot" in (attrs.get("class") or "")]
    assert len(drawn) == 7  # three of accuracy, two of loss, two of messages
    assert done.stdout.count('class="trace scatter') == 5 * 2
    assert done.stdout.count('class="point"') >= 2 * 2 * 3


def test_the_page_averages_its_curves_over_as_many_rounds_as_are_chosen(tmp_path):
    """Every second of 60 rounds is tested, with 0.2 and 0.6 in turn: of ten rounds five count, of which two or three
    are of each kind."""
    if BROWSER is None:
        lacking("there is no Chromium or Chrome on this machine")
    values = {number: (0.2, 0.6)[number // 2 % 2] for number in range(2, 61, 2)}
    lines = [line_of(number, values.get(number)) for number in range(1, 61)]
    page = report.write([run_folder(tmp_path / "run", lines)], tmp_path / "report.html")
    choose = """<script>
      const choice = document.getElementById("mean"), chart = document.querySelector("[data-figure=traffic]");
      choice.value = "10"; choice.dispatchEvent(new Event("change"));
      document.title = JSON.stringify(chart.data[0].y);
    </script></body>"""
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", choose), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += ["--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([BROWSER, *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(re.findall(r"<title>(.*?)</title>", done.stdout)[0])
    assert found[:3] == [pytest.approx(each) for each in (60, 40, (60 + 20 + 60) / 3)]
    assert found[10:12] == [pytest.approx((3 * 60 + 2 * 20) / 5), pytest.approx((2 * 60 + 3 * 20) / 5)]


def test_a_page_offers_means_over_fewer_rounds_than_there_are(tmp_path):
    def offered(rounds):
        lines = [line_of(number) for number in range(1, rounds + 1)]
        page = report.html([report.load(run_folder(tmp_path / f"of{rounds}", lines))])
        return [int(value) for value in re.findall(r'<option value="(\d+)"', page)]

    assert offered(4) == []
    assert offered(51) == [1, 5, 10, 25, 50]
