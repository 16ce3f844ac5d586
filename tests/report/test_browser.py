"""The page in a real browser: what its controls do, what it saves, and that everybody can use it."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
import time
from itertools import accumulate, count
from pathlib import Path

import pytest
from browser import PATIENCE
from invented_runs import HOSPITALS, judged_folder, run_folder
from seeds import CLIENTS, METHODS, ROUNDS, SEEDS, bytes_of, chains_of, reached, rolled, seeds_in, values_of

from fedrelay import report

DRAWN = "document.documentElement.dataset.drawn !== undefined"
CHART = "document.querySelector('[data-figure=\"0-rounds\"]')"
AXE = Path(__file__).resolve().parents[1] / "axe" / "axe.min.js"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of two methods with six seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    return report.write([seeds_in(folder / "all")], folder / "report.html")


@pytest.fixture(scope="module")
def opened(written, browser):
    """Opened once: drawing it takes longer than all that is asked of it."""
    with browser.page(written.as_uri()) as page:
        page.wait(DRAWN)
        yield page


@pytest.fixture
def page(opened, written):
    """As it was at the beginning, but for where it is scrolled to."""
    for what, value in {"seeds": "range", "mean": "5", "target": "60"}.items():
        choose(opened, what, value)
    yield opened
    opened.run("document.querySelectorAll('[data-run][aria-pressed=false]').forEach((one) => one.click())")
    opened.run("document.querySelector('[data-choice=axis]').click()")
    assert opened.complaints() == []
    assert opened.requests() == [written.as_uri()]


def choose(page, what, value):
    """As a user does who changes a control."""
    page.run(f"""(() => {{
        const control = document.querySelector("[data-choice={what}]");
        control.value = {json.dumps(value)};
        control.dispatchEvent(new Event("input", {{bubbles: true}}));
        control.dispatchEvent(new Event("change", {{bubbles: true}}));
    }})()""")


def lines(page):
    """The lines of the main curve that are drawn, by name; bands are none."""
    found = page.run(f"""{CHART}.data.filter((t) => !t.aside && t.visible).map(
        ({{name, x, y, low, high}}) => ({{name, x: [...x], y: [...y], low, high}}))""")
    return {one["name"]: one for one in found}


def table(page):
    """The cells of the table of what it took to the target."""
    rows = page.run("""[...document.querySelector("[data-table=target]").tBodies[0].rows].map((row) =>
        [...row.cells].map((cell) => (cell.querySelector(".best") ?? cell).textContent))""")
    return {row[0]: row[1:] for row in rows}


def saved(page, folder, selector):
    """What a button of the page saves."""
    page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.run(f"document.querySelector({json.dumps(selector)}).click()")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done = [path for path in folder.iterdir() if path.suffix in (".csv", ".svg", ".tex")]
        if done:
            return done[0].name, done[0].read_text(encoding="utf-8")
        time.sleep(0.02)
    raise TimeoutError(selector)


def test_bands_lie_around_the_mean_of_the_seeds(page):
    expected = {
        method: list(zip(*(rolled(values_of(method, seed), 5) for seed in SEEDS), strict=True)) for method in METHODS
    }
    found = lines(page)
    assert list(found) == list(METHODS)
    for method, values in expected.items():
        assert found[method]["y"] == pytest.approx([100 * statistics.fmean(each) for each in values])
        assert found[method]["low"] == pytest.approx([100 * min(each) for each in values])
        assert found[method]["high"] == pytest.approx([100 * max(each) for each in values])
    choose(page, "seeds", "deviation")
    last = expected["FedSeq"][-1]
    apart = 100 * statistics.stdev(last)
    assert lines(page)["FedSeq"]["high"][-1] == pytest.approx(100 * statistics.fmean(last) + apart)
    assert "standard deviation" in page.run(f"{CHART}.closest('figure').querySelector('figcaption').textContent")
    choose(page, "seeds", "each")
    assert len(lines(page)) == len(METHODS) * len(SEEDS)


def test_runs_are_hidden_and_axes_switched_by_the_keyboard(page):
    choose(page, "seeds", "each")
    choose(page, "mean", "1")
    page.run("document.querySelector('[data-run=\"0\"]').focus()")
    page.key(" ", 32, " ")
    page.wait("document.querySelector('[data-run=\"0\"]').getAttribute('aria-pressed') === 'false'")
    assert "FedAvg/seed-0" not in lines(page)
    assert len(lines(page)) == len(METHODS) * len(SEEDS) - 1
    page.run("document.querySelector('[data-choice=axis]').focus()")
    page.key("ArrowRight", 39)
    page.wait(f"{CHART}.layout.xaxis.title.text.startsWith('Traffic')")
    found = lines(page)["FedSeq/seed-3"]
    assert found["x"] == pytest.approx([sent / 1000 for sent in accumulate(bytes_of("FedSeq", 3))])  # kB
    assert found["y"] == pytest.approx([100 * value for value in values_of("FedSeq", 3)])


def test_the_table_follows_target_and_smoothing(page):
    choose(page, "seeds", "each")
    for target, over in ((60, 5), (60, 1), (41.3, 10)):
        choose(page, "mean", str(over))
        choose(page, "target", str(target))
        found = table(page)
        for method in METHODS:
            for seed in SEEDS:
                expected = reached(method, seed, target / 100, over)
                cells = found[f"{method}/seed-{seed}"]
                assert cells[0] == ("–" if expected is None else str(expected[0]))
                assert cells[1] == ("–" if expected is None else f"{expected[1] / 1000:.1f} kB")
    choose(page, "mean", "5")
    choose(page, "target", "60")
    choose(page, "seeds", "range")
    got = [reached("FedSeq", seed, 0.6, 5) for seed in SEEDS]
    rounds = [one[0] for one in got if one is not None]
    seeds, cell = table(page)["FedSeq"][:2]
    assert seeds == f"{len(rounds)} of 6"
    assert cell.split(" ± ")[0] == str(round(statistics.fmean(rounds)))
    choose(page, "target", "")
    assert "Write a number" in page.run("document.querySelector('[data-told=target]').textContent")


def test_a_mouse_over_a_curve_is_told_its_value(page):
    x, y, half = page.run(f"""(() => {{ {CHART}.scrollIntoView({{block: "center"}});
        const box = {CHART}.querySelector(".nsewdrag").getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2, Math.floor(box.width / 2)]; }})()""")
    told, until = "", time.monotonic() + PATIENCE
    for step in count(1):  # to the right until something is told, and again from the middle
        page.hover(x + step % half, y)
        time.sleep(0.02)
        told = page.run(f"{CHART}.querySelector('.hoverlayer').textContent")
        if told or time.monotonic() > until:
            break
    assert re.search(r"FedSeq : \d+\.\d %", told)


def test_what_is_shown_is_saved(page, tmp_path):
    for part in ("numbers", "figure", "table"):
        (tmp_path / part).mkdir()
    choose(page, "seeds", "each")
    page.run("document.querySelector('[data-run=\"11\"]').click()")
    name, text = saved(page, tmp_path / "numbers", "[data-save=csv]")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "0-rounds.csv"
    assert list(rows[0]) == ["name", "round", "Round", "Test accuracy"]
    expected = {f"{method}/seed-{seed}": values_of(method, seed) for method in METHODS for seed in SEEDS}
    del expected["FedSeq/seed-5"]
    assert len(rows) == ROUNDS * len(expected)
    for run, values in expected.items():
        mine = [float(row["Test accuracy"]) for row in rows if row["name"] == run]
        assert mine == pytest.approx([100 * value for value in rolled(values, 5)])
    page.run("document.getElementById('column').value = 'ieee'")
    name, text = saved(page, tmp_path / "figure", "[data-save=svg]")
    assert re.search(r'<svg[^>]* width="3\.500in"', text)
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)}
    assert max(sizes) == pytest.approx(8 * 96 / 72, abs=0.01)  # 8 points
    assert "FedSeq/seed-4" in text
    assert "FedSeq/seed-5" not in text
    _, text = saved(page, tmp_path / "table", "[data-save=latex]")
    assert (
        "\\begin{tabular}{lrrrr}\n    \\toprule\n    Run & rounds & traffic & hops in sequence & simulated time \\\\"
        in text
    )
    assert "60 \\%" not in text.split("\\toprule")[1]
    assert text.count(" \\\\\n") == 1 + len(expected)


def test_the_chains_of_every_round_can_be_seen(page):
    dots = "[...document.querySelectorAll('.chains g title')].map((one) => one.textContent)"

    def expected(number):
        lost = chains_of(0, 2)[1][0] if number == 2 else None
        kinds = ("cat", "<dog>", "cow")
        return [
            f"client {client}, mostly {kinds[client % 3]}{', lost' if client == lost else ''}"
            for chain in chains_of(0, number)
            for client in chain
        ]

    assert page.run(dots) == expected(1)
    page.run("document.querySelector('input[data-order=round]').focus()")
    page.key("ArrowRight", 39)
    page.wait("document.querySelector('output[data-order=number]').textContent === '2'")
    assert page.run(dots) == expected(2)
    assert "1 lost" in page.run("document.querySelector('[data-order=told]').textContent")
    assert page.run("document.querySelectorAll('.chains circle').length") == CLIENTS


def test_axe_finds_nothing_serious_in_light_and_dark(opened, browser, tmp_path):
    """axe-core's rules of WCAG 2 and good practice, on all that a page may have."""
    judged = judged_folder(tmp_path / "judged", HOSPITALS)
    going = run_folder(tmp_path / "going", finished=False)
    apart = run_folder(tmp_path / "apart", data="mnist")
    path = report.write([judged, going, apart], tmp_path / "report.html")
    with browser.page(path.as_uri()) as other:
        other.wait(DRAWN)
        for page in (opened, other):
            page.run(AXE.read_text(encoding="utf-8"))
            for scheme, some in {"dark": "{runOnly: ['color-contrast']}", "light": "{}"}.items():  # only colours differ
                page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                found = page.run(f"axe.run({some}).then(({{violations}}) => violations)")
                serious = [one for one in found if one["impact"] in ("serious", "critical")]
                assert [(scheme, one["id"], one["nodes"][0]["html"]) for one in serious] == []


def test_a_phone_shows_all_of_it_and_a_printer_only_what_paper_can(page):
    page.send("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    page.wait(f"{CHART}.querySelector('.main-svg').getBoundingClientRect().width <= 390")
    page.wait("document.documentElement.scrollWidth <= 390")
    page.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.send("Emulation.setEmulatedMedia", media="print", features=dark)
    seen = "getComputedStyle(document.querySelector('{}')).{}"
    assert page.run(seen.format("form.controls", "display")) == "none"
    assert page.run(seen.format("body", "backgroundColor")) == "rgb(255, 255, 255)"
    assert page.run(seen.format("body", "color")) == "rgb(0, 0, 0)"
    page.wait(f"{CHART}.layout.font.color === '#333333'")
    assert page.pdf().startswith(b"%PDF")
    page.send("Emulation.setEmulatedMedia", media="screen", features=[])


def test_runs_of_different_data_are_shown_apart(browser, tmp_path):
    folders = [run_folder(tmp_path / name, data=name, algorithm="fedavg") for name in ("digits", "mnist")]
    path = report.write(folders, tmp_path / "report.html")
    with browser.page(path.as_uri()) as page:
        page.wait(DRAWN)
        assert "different federations, shown apart" in page.run("document.querySelector('h1').textContent")
        drawn = [page.run(f"document.querySelector('[data-figure=\"{n}-rounds\"]').data.length") for n in (0, 1)]
        assert drawn == [1, 1]
        page.run("document.querySelector('[data-part=\"1\"] [data-run]').click()")
        hidden = "document.querySelector('[data-figure=\"{}-rounds\"]').data[0].visible"
        assert [page.run(hidden.format(number)) for number in (0, 1)] == [True, False]
        assert page.complaints() == []
