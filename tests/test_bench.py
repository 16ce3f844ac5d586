"""The parts of `make bench` that measure nothing themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SPEED = Path(__file__).resolve().parents[1] / "bench" / "speed"


@pytest.fixture
def speed(monkeypatch):
    """The modules of the benchmark, as its scripts import them."""
    monkeypatch.syspath_prepend(str(SPEED))
    before = set(sys.modules)
    import page
    import quiet
    import run
    import workloads

    yield SimpleNamespace(page=page, quiet=quiet, run=run, workloads=workloads)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(SPEED)):
            del sys.modules[name]


def found(speed, **changed):
    return speed.quiet.Found(**({"cores": 2, "load": 0.1, "share": 0.99, "spread": 0.05} | changed))


def test_a_quiet_machine_has_nothing_to_complain_of(speed):
    assert found(speed).complaints() == []
    assert found(speed, load=None).complaints() == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"load": 0.51}, "load average of the last minute is 0.51, and may be 0.50"),
        ({"share": 0.9}, "gets 90% of a core, and should get 95%"),
        ({"spread": 0.4}, "takes 40% longer than the median or more, and may take 25%"),
    ],
)
def test_what_is_not_quiet_is_said_with_its_limit(speed, changed, words):
    (wrong,) = found(speed, **changed).complaints()
    assert words in wrong
    assert words in speed.quiet.refusal([wrong])


def test_a_load_is_allowed_for_every_core_and_not_looked_at_later(speed):
    assert found(speed, load=0.9, cores=4).complaints() == []
    assert found(speed, load=9.0).complaints(load=False) == []


def test_the_spread_is_where_the_slowest_tenth_begins(speed):
    assert speed.quiet.spread_of([2.0] * 50) == 0
    assert speed.quiet.spread_of([1.0] * 85 + [1.5] * 15) == pytest.approx(0.5)
    assert speed.quiet.spread_of([1.0] * 95 + [9.0] * 5) == 0  # less than a tenth


def run_benchmark(speed, monkeypatch, tmp_path, *options, quiet):
    """Run its main with contenders that are made up: what it returns, and what it wrote."""
    wrong = [] if quiet else ["it is loud"]
    monkeypatch.setattr(speed.quiet, "wait", lambda **_: (found(speed), wrong))
    monkeypatch.setattr(speed.run, "measure", lambda work, *_: {"about": work.about, "rows": {}})
    pages = []
    monkeypatch.setattr(speed.page, "write", lambda results, docs: pages.append(results))
    out = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["run.py", "--peers", "python", "--only", "D", "--out", str(out), *options])
    return speed.run.main(), pages, {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}


def test_results_of_a_quiet_machine_are_published(speed, monkeypatch, tmp_path):
    status, pages, files = run_benchmark(speed, monkeypatch, tmp_path, quiet=True)
    assert (status, list(files)) == (0, ["results.json"])
    assert len(pages) == 1
    assert files["results.json"]["quiet"]["D"]["load"] == 0.1


def test_a_loud_machine_is_refused_and_nothing_is_written(speed, monkeypatch, tmp_path, capsys):
    status, pages, files = run_benchmark(speed, monkeypatch, tmp_path, quiet=False)
    assert (status, pages, files) == (1, [], {})
    assert "it is loud" in capsys.readouterr().err


def test_noisy_results_are_written_apart_and_not_published(speed, monkeypatch, tmp_path):
    status, pages, files = run_benchmark(speed, monkeypatch, tmp_path, "--noisy", quiet=False)
    assert (status, pages, list(files)) == (0, [], ["results-noisy.json"])


def test_everybody_who_is_measured_has_a_place_and_a_colour_on_the_page(speed):
    names = [name for name in speed.workloads.WORKLOADS if not name.endswith(speed.workloads.TRIAL)]
    assert sorted(names) == sorted(speed.page.WORKLOADS)
    for name in names:
        for settings in speed.run.contenders(name, "python"):
            assert settings[0].name in speed.page.COLOURS


def test_the_page_shows_limits_as_shares_and_peers_as_ratios(speed):
    row = {"median": 10.0, "ratio": 0.8, "setting": "2 processes", "version": "1.0", "gflops": 90.0}
    who = ("fedrelay", "fluke", "operators alone", "bound")
    lines = speed.page.rows("H", {"about": "text", "rows": dict.fromkeys(who, row)})
    assert "| fluke 1.0 | 10 | 0.80 × | 2 processes |" in lines
    assert "| operators alone  | 10 | 80% of it | 2 processes |" in lines
    assert "| bound  | 10 | 80% of it | 90 GFLOPS, 2 processes |" in lines


def test_text_is_characters_and_images_are_noise(speed):
    x, y = speed.workloads.WORKLOADS["H"].data()
    assert (x.dtype.kind, x.shape[1:], int(max(x.max(), y.max()))) == ("i", (80,), 79)
    x, y = speed.workloads.WORKLOADS["I"].data()
    assert (x.dtype.kind, x.shape[1:], int(y.max())) == ("f", (32, 32, 3), 9)


def test_the_operations_of_resnet_are_those_that_are_published(speed):
    """0.56 billion multiply-adds for an image of 32 x 32 (He et al. 2016 with the stem for small images)."""
    assert sum(speed.workloads.WORKLOADS["I"].multiplications) == pytest.approx(0.556e9, rel=0.01)
