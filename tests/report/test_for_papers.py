"""Tables and figures for a paper: what LaTeX and a journal ask for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from statistics import fmean, stdev

import pytest
from invented_runs import run_folder
from needs import needed
from seeds import METHODS, ROUNDS, SEEDS, rolled, seeds_in, values_of

from fedrelay import cli, report
from fedrelay.errors import BadInput
from fedrelay.report import drawn
from fedrelay.report.columns import COLUMNS
from fedrelay.report.latex import escaped


def test_text_is_printed_as_it_is():
    assert escaped("a_b & 50% {x} #1 $ \\ ~ ^") == (
        "a\\_b \\& 50\\% \\{x\\} \\#1 \\$ \\textbackslash{} \\textasciitilde{} \\textasciicircum{}"
    )
    assert escaped("– 1\u202f000 ± <3>") == "-- 1\\,000 $\\pm$ \\textless{}3\\textgreater{}"


def test_the_table_has_a_row_for_every_method_over_its_seeds(tmp_path):
    runs, _ = report.gathered([seeds_in(tmp_path / "all")])
    text = report.latex(runs)
    last = {method: [fmean(values_of(method, seed)[-5:]) for seed in SEEDS] for method in METHODS}
    cells = {m: f"{100 * fmean(v):.1f} \\% $\\pm$ {100 * stdev(v):.1f} \\%" for m, v in last.items()}
    assert f"FedAvg & {cells['FedAvg']} & " in text
    assert f"FedSeq & \\textbf{{{cells['FedSeq']}}} & " in text
    assert "over 6 seeds" in text
    assert "Method & Accuracy (mean of last) & " in text
    body = text.split("\\midrule")[1].split("\\bottomrule")[0]
    assert {line.count(" & ") for line in body.strip().splitlines()} == {5}
    assert re.search(r"\\begin\{tabular\}\{lrrrrr\}", text)


def test_a_share_that_not_all_seeds_reached_says_how_many_did(tmp_path):
    for seed, rounds in enumerate((3, None)):
        run_folder(
            tmp_path / "FedAvg" / f"seed-{seed}", seed=seed, rounds_to={"0.9": rounds}, traffic_to={"0.9": rounds}
        )
    assert "-- (1/2)" in report.latex(report.gathered([tmp_path])[0])


def test_figures_are_as_wide_as_a_column_with_letters_of_its_size(tmp_path):
    needed("matplotlib")
    seeds_in(tmp_path / "all")
    out, figures = tmp_path / "page.html", tmp_path / "figures"
    options = ["--out", str(out), "--figures", str(figures), "--latex", str(tmp_path / "table.tex")]
    command = ["report", str(tmp_path / "all"), *options, "--column", "nature"]
    assert cli.main(command) == 0
    assert sorted(path.name for path in figures.iterdir()) == sorted(
        f"{name}.{ending}"
        for name in ("accuracy-round", "accuracy-traffic", "accuracy-hops", "accuracy-clock", "loss-round")
        for ending in ("svg", "pdf")
    )
    root = ET.parse(figures / "accuracy-round.svg").getroot()
    assert float(root.get("width").removesuffix("pt")) == pytest.approx(89 / 25.4 * 72)
    text = (figures / "accuracy-round.svg").read_text()
    assert set(re.findall(r"font-size: ([\d.]+)px", text)) == {"7"}  # of units that are points, as its width says
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", (figures / "accuracy-round.pdf").read_bytes())
    assert float(box[1]) == pytest.approx(89 / 25.4 * 72, abs=0.01)
    assert cli.main(command) == 2  # nothing is overwritten


def test_a_figure_shows_the_mean_of_the_seeds_and_how_far_they_are_apart(tmp_path):
    needed("matplotlib")
    runs, _ = report.gathered([seeds_in(tmp_path / "all")])
    figure = drawn.drawn(runs, [run.name for run in runs], COLUMNS["ieee"])["accuracy-round"]
    plot = figure.axes[0]
    for line, method in zip(plot.get_lines(), METHODS, strict=True):
        curves = [rolled(values_of(method, seed), 5) for seed in SEEDS]
        assert line.get_label() == method
        assert list(line.get_xdata()) == list(range(1, ROUNDS + 1))
        assert list(line.get_ydata()) == pytest.approx([100 * fmean(each) for each in zip(*curves, strict=True)])
    assert len(plot.collections) == len(METHODS)


def test_a_column_that_nobody_knows_is_refused(tmp_path):
    run = report.load(run_folder(tmp_path / "run"))
    with pytest.raises(BadInput, match="no column 'wide': one of ieee"):
        report.write_figures([run], tmp_path / "figures", "wide")
