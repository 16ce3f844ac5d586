"""Several seeds of the same runs together: mean and deviation, in a picture and by client."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from fedrelay.runs.results import ClientResult, Clients, write_clients
from fedrelay.studies.over_seeds import Repeated, by_client, picture
from fedrelay.tasks import Headline


def with_clients(folder, **accuracies):
    folder.mkdir(parents=True)
    each = [ClientResult(n, name, 10, 5, {"accuracy": value}) for n, (name, value) in enumerate(accuracies.items())]
    write_clients(folder, Clients("accuracy", True, tuple(each)))
    return folder


def test_a_bar_is_the_mean_and_every_seed_a_dot():
    (figure,) = picture([Repeated("<a>", (0.4, 0.6)), Repeated("b", (0.7, 0.7)), Repeated("failed", ())], Headline())
    go.Figure(figure.spec)
    bar, dots, other, _ = figure.spec["data"]
    assert bar["x"] == [pytest.approx(50)]
    assert bar["error_x"]["array"] == [pytest.approx(200**0.5)]
    assert dots["x"] == pytest.approx([40, 60])
    assert other["error_x"]["array"] == [pytest.approx(0)]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == ["&lt;a&gt;", "b"]
    assert "The mean of 2 seeds" in figure.caption


def test_with_one_seed_there_is_nothing_to_say():
    assert picture([Repeated("a", (0.5,)), Repeated("b", ())], Headline()) == []


def test_every_domain_has_its_mean_and_deviation(tmp_path):
    folders = [
        with_clients(tmp_path / "a" / "0", photo=0.4, sketch=0.9),
        with_clients(tmp_path / "a" / "1", photo=0.6, sketch=0.9),
    ]
    alone = with_clients(tmp_path / "b", photo=0.5)
    text = by_client([Repeated("fedelmy", (0.5, 0.6), tuple(folders)), Repeated("other", (0.5,), (alone,))])
    assert text.startswith("Accuracy of every client:")
    assert "| run | photo | sketch |" in text
    assert "| fedelmy | 50.0% ± 14.1% | 90.0% |" in text
    assert "| other | 50.0% | – |" in text


def test_a_client_that_a_seed_lacks_has_no_mean(tmp_path):
    folders = (with_clients(tmp_path / "0", photo=0.4), with_clients(tmp_path / "1", photo=None))
    assert "| run | – |" in by_client([Repeated("run", (0.4, 0.4), folders)])


def test_without_clients_or_with_very_many_there_is_no_table(tmp_path):
    assert by_client([Repeated("a", (0.5,), (tmp_path,))]) == ""
    many = with_clients(tmp_path / "many", **{f"client {n}": 0.5 for n in range(13)})
    assert by_client([Repeated("a", (0.5,), (many,))]) == ""
