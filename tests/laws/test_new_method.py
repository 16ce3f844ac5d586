"""A method costs one recipe and one row: everything that goes over the table has it then, nothing else is edited."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
import zoo

from fedrelay import BadInput, cli, config
from fedrelay.algorithms import ALGORITHMS, Change, Method
from fedrelay.config.method import build_method
from fedrelay.studies import method_tables
from fedrelay.types import Tree, Vector, Visit
from fedrelay.visits import Effect, Force, Proximal, Sgd, Term

# --- the whole method


def fedhome(*, strength: float = 0.1) -> Change:
    """A spring holds every client to the model that it sent the last time.

    When a test wants a method that nobody has heard of.

    Papers: strength 0.1 (this file)
    """
    return Change(terms=(Homesick(strength),))


@dataclass(frozen=True)
class Homesick(Term):
    """The gradient gets strength · (w - the client's last model)."""

    strength: float = 0.1

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("home",)

    def begin(self, received: Vector, visit: Visit, /) -> Effect:
        received = visit.weights(received)
        return Effect(Force(self.strength, visit.memory.get("home", received)))

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        return {**visit.memory, "home": visit.weights(trained)}, {}


NAME = "fedhome"
ROW = Method(fedhome, is_fedavg={"strength": 0.0})


@pytest.fixture(autouse=True)
def _in_the_table(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, NAME, ROW)


# --- who has it


def test_the_command_line_lists_it_with_its_parameters_and_those_of_all_methods(capsys):
    assert cli.main(["list", "algorithms", "--json"]) == 0
    entry = next(entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == NAME)
    assert entry["about"] == "A spring holds every client to the model that it sent the last time."
    assert entry["parameters"]["strength"] == 0.1
    assert entry["parameters"].keys() == {"strength", "fraction", "sampler", "merge", "private", "defence", "privacy"}
    assert cli.main(["list", "algorithms"]) == 0
    assert NAME in capsys.readouterr().out


def test_the_table_of_the_documentation_has_a_whole_row_for_it():
    document = "\n".join(f"<!-- {name} -->\n<!-- end -->" for name in method_tables.TABLES)
    (line,) = [line for line in method_tables.renewed(document).splitlines() if line.startswith(f"| `{NAME}`")]
    assert re.split(r" \| ", line.strip("| ")) == [
        f"`{NAME}`",
        "A spring holds every client to the model that it sent the last time.",
        "When a test wants a method that nobody has heard of.",
        "home (a model's size)",
        "1",
        "clients that come back and keep state",
        "`strength = 0.1`",
        "strength 0.1 (this file)",
    ]


def test_a_configuration_names_it_alone_and_joined():
    algorithm, told = build_method({"name": NAME, "strength": 2, "fraction": 0.5}, Sgd())
    assert algorithm.update == Sgd(terms=(Homesick(2.0),))
    assert told == {"name": NAME, "strength": 2.0, "fraction": 0.5, "sampler": {"name": "uniform"}}
    algorithm, told = build_method({"name": f"fedseq+{NAME}+fedprox", "mu": 0.3, "max_clients": 4}, Sgd())
    assert algorithm.update.terms == (Homesick(), Proximal(0.3))
    assert algorithm.plan == build_method({"name": "fedseq", "max_clients": 4}, Sgd())[0].plan
    assert (told["strength"], told["mu"], told["max_clients"]) == (0.1, 0.3, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "fedhoem"}, "unknown name 'fedhoem'; did you mean 'fedhome'"),
        ({"name": NAME, "strenght": 1}, "unknown key 'strenght'; did you mean 'strength'"),
        ({"name": f"{NAME}+{NAME}"}, "names a method twice"),
        ({"name": f"centralized+{NAME}"}, "the reference without federation"),
    ],
)
def test_mistakes_with_it_are_told_as_with_any_other(settings, message):
    with pytest.raises(BadInput, match=message):
        build_method(settings, Sgd())


def test_a_run_from_a_file_trains_with_it_and_goes_on_after_a_stop(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text(f"""
rounds = 2
[data]
name = "digits"
clients = 12
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "fedseq+{NAME}"
max_clients = 3
[engine]
name = "inline"
""")
    command = ["run", str(file), "--out", str(tmp_path / "here"), "--json"]
    assert cli.main(command) == 0
    assert cli.main([*command, "--set", "rounds=3", "--resume"]) == 0
    capsys.readouterr()
    again = config.read(tmp_path / "here" / "config.toml")
    assert again["algorithm"]["name"] == f"fedseq+{NAME}"
    assert again["algorithm"]["strength"] == 0.1
    assert len((tmp_path / "here" / "rounds.jsonl").read_text().splitlines()) == 3


# --- what is checked of every method


@pytest.mark.parametrize("name", [NAME, f"fedseqinter+{NAME}", f"{NAME}+scaffold"])
def test_it_gives_the_same_on_every_engine_also_after_a_resume(name, tmp_path):
    with zoo.shared_pools() as pools:
        zoo.check_engines(name, pools, tmp_path)


@pytest.mark.parametrize("local", [zoo.PLAIN, zoo.LOCAL], ids=["plain", "momentum"])
def test_it_is_fedavg_with_the_settings_of_its_row(local):
    zoo.check_is_fedavg(NAME, local)


def test_what_its_row_says_is_so():
    zoo.check_row(NAME)
    zoo.check_rest(NAME)


@pytest.mark.parametrize(
    ("row", "check"),
    [
        (Method(fedhome, is_fedavg={"strength": 0.5}), lambda name: zoo.check_is_fedavg(name, zoo.PLAIN)),
        (Method(fedhome, needs_features=True), zoo.check_row),
        (Method(fedhome, adds_to_model=True), zoo.check_row),
        (Method(fedhome, needs_classes=True), zoo.check_rest),
    ],
    ids=["is_fedavg", "needs_features", "adds_to_model", "needs_classes"],
)
def test_a_row_that_says_what_is_not_so_is_found_out(row, check, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, NAME, row)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(NAME)
