"""What the report reads and says: run folders, numbers, the headline, the table for the terminal."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invented_runs import ACCURACIES, line_of, racing, rendered, run_folder, summary_of

from fedrelay import report
from fedrelay.errors import BadInput
from fedrelay.report import figures, measures, tables
from fedrelay.report.headline import headline, notes, others

# --- loading


def test_a_finished_run_loads_with_its_config_rounds_and_summary(tmp_path):
    run = report.load(run_folder(tmp_path / "seq"))
    assert run.name == "seq"
    assert run.config["data"]["partition"]["name"] == "shards"
    assert [line.accuracy for line in run.rounds] == list(ACCURACIES)
    assert run.summary is not None
    assert run.summary.rounds_to["0.9"] == 4


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1))
def test_a_run_cut_off_at_any_byte_loads_the_rounds_that_are_whole(tmp_path_factory, share):
    folder = run_folder(tmp_path_factory.mktemp("cut") / "going", finished=False)
    raw = (folder / "rounds.jsonl").read_bytes()
    cut = raw[: int(share * len(raw))]
    (folder / "rounds.jsonl").write_bytes(cut)
    run = report.load(folder)
    assert len(run.rounds) == cut.count(b"\n")
    assert run.summary is None


def test_a_finished_run_taken_up_for_more_rounds_is_still_going(tmp_path):
    folder = run_folder(tmp_path / "more")
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(line_of(5)) + "\n")
    run = report.load(folder)
    assert run.summary is None
    assert len(run.rounds) == 5


def test_a_loss_that_is_not_a_number_is_a_gap_in_the_curve(tmp_path):
    lines = [line_of(1), line_of(2, loss=float("nan")), line_of(3, train_loss=float("inf"))]
    run = report.load(run_folder(tmp_path / "nan", lines))
    assert [line.loss for line in run.rounds] == [0.5, None, 0.5]
    assert run.rounds[2].train_loss is None


@pytest.mark.parametrize("name", ["config.toml", "rounds.jsonl"])
def test_a_missing_file_is_refused_by_its_full_name(tmp_path, name):
    folder = run_folder(tmp_path / "run")
    (folder / name).unlink()
    with pytest.raises(BadInput, match=re.escape(f"{folder / name} is missing: ")):
        report.load(folder)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder: name a folder that"):
        report.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("config.toml", b"rounds = = 4", "run the experiment again"),
        ("config.toml", b'name = "\xff"', "run the experiment again"),
        ("summary.json", b'{"algorithm": "fedse', "run with --resume to write it anew"),
        ("summary.json", json.dumps(summary_of(messages={"total": 3})).encode(), "messages should have the numbers"),
        ("summary.json", json.dumps(summary_of(rounds_to={"most": 3})).encode(), "shares of the target"),
        ("rounds.jsonl", b'{"round": 1}\n', "accuracy should|clients should"),
        ("rounds.jsonl", b"[1, 2]\n", "one JSON object"),
        ("rounds.jsonl", b"\x00\x00\x00\n", "not JSON"),
        (
            "rounds.jsonl",
            json.dumps(line_of(1, drops=[{"client": 1}])).encode() + b"\n",
            "client, chain, hop and reason",
        ),
        ("rounds.jsonl", json.dumps(line_of(1, depth="deep")).encode() + b"\n", "depth should be a number"),
        ("rounds.jsonl", json.dumps(line_of(1)).encode() + b"\n", "summary.json counts 4 rounds: lines were lost"),
    ],
)
def test_a_damaged_file_is_refused_by_its_full_name(tmp_path, name, content, expected):
    folder = run_folder(tmp_path / "run")
    (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=expected) as refusal:
        report.load(folder)
    assert str(folder / name) in str(refusal.value)


def test_a_damaged_line_in_the_middle_is_refused_with_its_number(tmp_path):
    folder = run_folder(tmp_path / "run", finished=False)
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    lines[1] = lines[1][:30] + "\n"
    (folder / "rounds.jsonl").write_text("".join(lines))
    with pytest.raises(BadInput, match="line 2, is damaged"):
        report.load(folder)


def test_a_round_left_out_is_refused(tmp_path):
    folder = run_folder(tmp_path / "run", [line_of(1), line_of(3)], finished=False)
    with pytest.raises(BadInput, match=r"line 2, is damaged .round should be 2, found 3"):
        report.load(folder)


# --- the numbers


def test_traffic_and_hops_add_up_over_the_rounds(tmp_path):
    run = report.load(run_folder(tmp_path / "run", [line_of(1), line_of(2, depth=7), line_of(3)], finished=False))
    assert measures.traffic(run) == [1000, 2000, 3000]
    assert measures.hops(run) == [3, 10, 13]
    assert measures.total(run, "messages") == 30
    assert measures.depth(run) == 7


def test_hops_to_a_share_stop_at_the_round_that_reached_it(tmp_path):
    run = report.load(run_folder(tmp_path / "run"))
    assert measures.hops_to(run, "0.7") == 9
    assert measures.hops_to(run, "0.9") == 12


def test_runs_of_one_name_are_told_apart_by_their_parents(tmp_path):
    runs = [report.load(run_folder(tmp_path / place / "fedseq")) for place in ("a", "b")]
    runs.append(report.load(run_folder(tmp_path / "fedavg")))
    assert measures.labels(runs) == ["a/fedseq", "b/fedseq", "fedavg"]
    assert measures.labels([runs[0], runs[0]])[0] != measures.labels([runs[0], runs[0]])[1]


def test_only_the_settings_that_differ_are_said_to_differ(tmp_path):
    one = report.load(run_folder(tmp_path / "one", algorithm="fedavg"))
    two = report.load(run_folder(tmp_path / "two", extra="laps = 2\n"))
    differing = {setting.key: setting.values for setting in tables.settings([one, two]) if setting.differs}
    assert differing == {"algorithm.name": ('"fedavg"', '"fedseq"'), "algorithm.laps": (None, "2")}


def test_dropped_clients_are_gathered_by_reason_the_most_frequent_first(tmp_path):
    def drop(client, reason):
        return {"client": client, "hop": 0, "chain": 1, "reason": reason}

    lines = [line_of(1, drops=[drop(4, "asleep")]), line_of(2, drops=[drop(9, "not finite"), drop(2, "not finite")])]
    run = report.load(run_folder(tmp_path / "run", lines))
    found = tables.dropped([run], ["run"])
    assert [(lost.reason, lost.times, lost.clients, lost.rounds) for lost in found] == [
        ("not finite", 2, "2, 9", "2"),
        ("asleep", 1, "4", "1"),
    ]


# --- the headline


def test_the_headline_names_one_winner_of_both(tmp_path):
    runs, names = racing(tmp_path, fedavg=(60, 9_000_000), fedseq=(12, 2_000_000), fedprox=(None, None))
    assert headline(runs, names) == (
        "fedseq reached 90 % of the target (72.0 % accuracy) "
        "in the fewest rounds (12) and with the least traffic (2.0 MB)."
    )
    assert others(runs, names) == "fedavg took 60 rounds and 9.0 MB; fedprox did not get there in 4 rounds."


def test_the_headline_names_two_winners_when_they_differ(tmp_path):
    runs, names = racing(tmp_path, fedavg=(60, 1_000_000), fedseq=(12, 2_000_000))
    assert "fedseq reached 90 %" in headline(runs, names)
    assert "fewest rounds (12), fedavg with the least traffic (1.0 MB)." in headline(runs, names)


def test_the_headline_names_both_when_they_are_level(tmp_path):
    runs, names = racing(tmp_path, fedavg=(12, 1000), fedseq=(12, 1000))
    assert headline(runs, names).startswith("fedavg and fedseq reached 90 %")


def test_a_centralised_run_never_wins(tmp_path):
    runs, names = racing(tmp_path, centralized=(1, 0), fedavg=(60, 5000), fedseq=(12, 7000))
    assert headline(runs, names).startswith("fedseq reached")
    assert all(0 not in column.best for column in tables.reached(runs))


def test_the_headline_says_when_nobody_reached_the_target(tmp_path):
    runs, names = racing(tmp_path, fedavg=(None, None))
    assert headline(runs, names) == (
        "No run reached 90 % of the target (80.0 %); fedavg has the best accuracy: 90.0 %."
    )


def test_the_headline_of_one_run_says_what_it_took(tmp_path):
    runs, names = racing(tmp_path, fedseq=(1, 2000))
    assert headline(runs, names) == (
        "fedseq reached 90 % of the target (72.0 % accuracy) after 1 round and 2.0 kB of traffic."
    )


def test_a_run_that_is_still_going_and_targets_that_differ_are_noted(tmp_path):
    runs = [
        report.load(run_folder(tmp_path / "going", [line_of(1)], finished=False)),
        report.load(run_folder(tmp_path / "low", target=0.5)),
        report.load(run_folder(tmp_path / "high", target=0.9)),
    ]
    found = notes(runs, ["going", "low", "high"])
    assert "going (round 1 of 4)" in found[0]
    assert "different targets (50.0 % to 90.0 %)" in found[1]


def test_a_reference_with_a_target_of_its_own_is_noted(tmp_path):
    runs = [
        report.load(run_folder(tmp_path / "centralized", algorithm="centralized", target=1.0)),
        report.load(run_folder(tmp_path / "fedseq", target=0.9)),
    ]
    assert measures.targets(runs) == [0.9]
    assert notes(runs, ["centralized", "fedseq"]) == [
        "centralized is a reference, and its columns are measured against 100.0 %."
    ]


def test_a_task_without_accuracy_is_compared_by_loss(tmp_path):
    runs = [
        report.load(run_folder(tmp_path / name, [line_of(1, None, loss=loss)], finished=False))
        for name, loss in (("one", 0.5), ("two", 0.25))
    ]
    assert headline(runs, ["one", "two"]) == "two has the lowest test loss: 0.25."
    assert [figure.key for figure in figures.curves(runs, ["one", "two"])] == [
        "rounds",
        "traffic",
        "hops",
        "train_loss",
    ]
    assert [column.title for column in tables.reached(runs)] == ["final"]
    assert "0.25" in rendered(report.table(runs))


# --- the terminal


def test_the_table_fits_eighty_columns_with_one_line_per_run(tmp_path):
    runs, _ = racing(tmp_path, fedavg=(158, 95_100_000), fedcyclic=(22, 6_950_000), centralized=(6, 0))
    going = report.load(run_folder(tmp_path / "[red]fedseq", [line_of(1)], finished=False))
    shown = rendered(report.table([*runs, going])).splitlines()
    rows = {row.split()[0]: row.split() for row in shown if row.split()}
    assert max(map(len, shown)) <= 80
    assert rows["fedavg"][1:] == ["90.0", "%", "158", "95.1", "40", "3", "2.0"]
    assert rows["fedcyclic"][4] == "6.95"
    assert rows["[red]fedseq"][1:] == ["…", "50.0", "%", "–", "–", "10", "3", "0.5"]


def test_the_table_shows_every_share_in_one_unit(tmp_path):
    run = report.load(run_folder(tmp_path / "run", traffic_to={"0.7": 4000, "0.9": 2_500_000}))
    shown = rendered(report.table([run]))
    assert "MB to" in shown
    assert "70/90 %" in shown
    assert "<0.01/2.50" in shown
    assert "3/4" in shown


def timed_run(folder, seconds=(1.0, 2.0, 3.0, 10.0), **changes):
    lines = [
        line_of(
            i,
            0.2 * i,
            simulated_seconds=time,
            relayed={"messages": 4, "bytes": 400},
            describing={"messages": 3, "bytes": 2000 if i == 1 else 0},
            groups=2 * i,
        )
        for i, time in enumerate(seconds, 1)
    ]
    return report.load(run_folder(folder, lines, time_to={"0.7": 6.0, "0.9": 16.0}, **changes))


def test_simulated_time_stands_beside_rounds_and_traffic_where_a_run_has_a_clock(tmp_path):
    timed, plain = timed_run(tmp_path / "timed"), report.load(run_folder(tmp_path / "plain"))
    assert measures.clock(timed) == [1, 3, 6, 16]
    assert measures.clock(plain) == []
    columns = {(column.group, column.title): column.cells for column in tables.reached([timed, plain])}
    assert columns["Simulated time to", "70 %"] == ("6.0 s", "–")
    costs = {(column.group, column.title): column.cells for column in tables.costs([timed, plain])}
    assert costs["Time", "simulated"] == ("16.0 s", "–")
    assert costs["Sent", "relayed by the server"] == ("1.6 kB", "0 bytes")
    assert costs["Sent", "to describe clients"] == ("2.0 kB", "0 bytes")
    assert costs["Groups", "mean number"] == ("5", "2")
    assert ("Estimated (FedGSP)", "computing") not in costs
    assert "simulated s to" in rendered(report.table([timed, plain]), 100)
    (figure,) = [one for one in figures.curves([timed, plain], ["timed", "plain"]) if one.key == "clock"]
    assert [trace["x"] for trace in figure.spec["data"]] == [[1, 3, 6, 16], []]


def test_speed_up_stands_beside_the_rounds_and_compares_runs_of_one_seed(tmp_path):
    """Rounds to 90 % as in FedSeq 2022, Table II: 4036 by FedAvg with one seed, 7649 with another."""
    runs = [
        report.load(run_folder(tmp_path / name / f"seed-{seed}", algorithm=method, rounds_to={"0.9": rounds}))
        for name, method, seed, rounds in [
            ("FedAvg", "fedavg", 0, 4036),
            ("FedAvg", "fedavg", 1, 7649),
            ("chains", "fedseq", 0, 594),
            ("chains", "fedseq", 1, 991),
            ("lost", "fedseq", 0, None),
        ]
    ]
    runs = [replace(run, config={**run.config, "seed": int(run.name[-1])}) for run in runs]
    columns = {(column.group, column.title): column for column in tables.reached(runs)}
    cells = columns["Speed-up over FedAvg to", "90 %"]
    assert cells.cells == ("1.00×", "1.00×", "6.79×", "7.72×", "–")
    assert cells.best == {3}
    other = tables.reached(runs, report.Against("lost"))
    assert {c.cells for c in other if c.group == "Speed-up over lost to"} == {("–",) * 5}
    with pytest.raises(BadInput, match="there is no run 'nobody' to measure"):
        report.html(runs, against=report.Against("nobody"))
    assert not any(column.group.startswith("Speed-up") for column in tables.reached(runs[2:]))


def test_groups_are_counted_in_those_of_fedseq(tmp_path):
    """FedSeq journal 2024, Table 5: 113 groups on average against 50 are 2.26 times as many."""
    sizes = {"fedseq": (50, 50), "fedseq2par": (50, 176)}
    runs = [
        report.load(
            run_folder(tmp_path / name, [line_of(i, 0.5, groups=n) for i, n in enumerate(groups, 1)], algorithm=name)
        )
        for name, groups in sizes.items()
    ]
    costs = {(column.group, column.title): column.cells for column in tables.costs(runs)}
    assert costs["Groups", "mean number"] == ("50", "113")
    assert costs["Groups", "times fedseq's"] == ("1.00×", "2.26×")


def test_what_it_took_to_the_target_by_fedgsps_formulas_and_the_loss_have_columns(tmp_path):
    to = {"computing_seconds": {"0.9": 1.5}, "communication_seconds": {"0.9": 90.0}, "traffic_bytes": {"0.9": 4e6}}
    runs = [
        report.load(run_folder(tmp_path / "known", estimates_to=to, mean_loss=0.453)),
        report.load(run_folder(tmp_path / "old")),
    ]
    columns = {(column.group, column.title): column.cells for column in tables.estimated(runs)}
    assert columns["Computing time to", "90 %"] == ("1.5 s", "–")
    assert columns["Communication time to", "90 %"] == ("90.0 s", "–")
    assert columns["Traffic to", "90 %"] == ("4.0 MB", "–")
    assert tables.estimated(runs[1:]) == []
    reached = {(column.group, column.title): column.cells for column in tables.reached(runs)}
    assert reached["Test loss", "mean of last"] == ("0.453", "–")
    page = report.html(runs)
    assert "FedGSP" in page
    assert "every visit by way of the server" not in report.html(runs[1:])


def test_what_fedgsp_would_estimate_stands_with_the_costs(tmp_path):
    estimates = {"computing_seconds": 1.5, "communication_seconds": 90.0, "traffic_bytes": 4e6}
    known = report.load(run_folder(tmp_path / "known", estimates=estimates))
    plain = report.load(run_folder(tmp_path / "plain"))
    costs = {(column.group, column.title): column.cells for column in tables.costs([known, plain])}
    assert costs["Estimated (FedGSP)", "computing"] == ("1.5 s", "–")
    assert costs["Estimated (FedGSP)", "communication"] == ("90.0 s", "–")
    with pytest.raises(BadInput, match="estimates should hold numbers"):
        report.load(run_folder(tmp_path / "bad", estimates={"computing_seconds": "long"}))


def test_without_a_clock_nothing_is_said_of_time_that_was_not_simulated(tmp_path):
    run = report.load(run_folder(tmp_path / "plain"))
    assert not any(column.group == "Simulated time to" for column in tables.reached([run]))
    assert not any(column.title == "simulated" for column in tables.costs([run]))
    assert "simulated" not in rendered(report.table([run]))
    assert not any(figure.key == "clock" for figure in figures.curves([run], ["plain"]))


ERRORS = {"metric": "rmse", "higher_is_better": False, "share": False, "target": 2.0}
NO_ACCURACY = {"accuracy": None, "best_accuracy": None, "final_accuracy": None}


def errors(folder, values, **changes):
    """A run that predicts numbers, and has these errors."""
    lines = [line_of(number, None, metrics={"rmse": value, "r2": 0.5}) for number, value in enumerate(values, 1)]
    figures = {"mean": values[-1], "best": min(values), "final": values[-1]}
    return report.load(run_folder(folder, lines, **NO_ACCURACY, **ERRORS, **figures, **changes))


def test_runs_that_are_judged_by_an_error_are_told_by_it(tmp_path):
    runs = [
        errors(tmp_path / "good", (9.0, 4.0, 2.2)),
        errors(tmp_path / "bad", (9.0, 8.0, 7.0), rounds_to={"0.9": None}),
    ]
    names = ["good", "bad"]
    first = tables.reached(runs)[0]
    assert (first.group, first.title, first.cells, first.best) == ("Test RMSE", "final", ("2.2", "7"), {0})
    assert headline(runs, names).startswith("good reached 90 % of the target (RMSE 2.222) in the fewest rounds")
    titles = [figure.title for figure in figures.curves(runs, names)]
    assert titles[0] == "Test RMSE over rounds"
    assert "Test R² over rounds" in titles
    layout = figures.curves(runs, names)[0].spec["layout"]
    assert sorted(line["y0"] for line in layout["shapes"]) == pytest.approx([2.0, 2 / 0.9, 2 / 0.7])
    assert "ticksuffix" not in layout["yaxis"]
    assert "The target is a test RMSE of 2." in report.html(runs)
    nowhere = [errors(tmp_path / "none", (9.0, 8.0), rounds_to={"0.7": None}, traffic_to={})]
    assert headline(nowhere, ["none"]) == "No run reached 70 % of the target (2); none has the best RMSE: 8."


def test_a_run_that_still_goes_is_told_by_the_headline_of_its_configuration(tmp_path):
    lines = [line_of(1, 0.5, metrics={"f1": 0.25})]
    said = {
        'headline = "f1"': ("f1", True, True),
        'headline = { name = "depth", higher_is_better = false, share = false }': ("depth", False, False),
        'headline = "loss"': ("loss", False, False),
    }
    for number, (extra, expected) in enumerate(said.items()):
        run = report.load(run_folder(tmp_path / str(number), lines, finished=False, extra=f"[task]\n{extra}\n"))
        found = measures.headline_of(run)
        assert (found.name, found.higher_is_better, found.share) == expected
    run = report.load(tmp_path / "0")
    assert measures.figure(measures.final(run, measures.headline([run])), measures.headline([run])) == "25.0 %"


def test_runs_that_are_judged_by_different_figures_are_told_apart(tmp_path):
    runs = [report.load(run_folder(tmp_path / "a")), errors(tmp_path / "b", (3.0,))]
    assert any("compared by accuracy, but b by another figure" in note for note in notes(runs, ["a", "b"]))
