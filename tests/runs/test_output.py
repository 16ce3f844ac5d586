"""What a finished run leaves: a model that can be used, with fedrelay or without, and figures for every client."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Recorder, config
from fedrelay.data import Normalise
from fedrelay.data.own import from_arrays
from fedrelay.engines import Inline
from fedrelay.models import Logistic, Mlp, Own
from fedrelay.runs import results, testing
from fedrelay.runs.folder import AT_THE_END
from fedrelay.runs.output import load_trained
from fedrelay.runs.results import read_clients, read_quality
from fedrelay.tasks import Ensemble, OneModel, PerClient

NAMES = ("Ulm", "Basel", "Wien")
CLASSES = ("healthy", "ill")


@pytest.fixture(scope="module")
def federation():
    """Three hospitals, each worse than the one before at telling who is ill."""
    rng = np.random.default_rng(0)
    clients = {}
    for noise, name in enumerate(NAMES, start=1):
        y = rng.integers(0, 2, 40)
        clients[name] = ((y[:, None] * [2.0, -1.0] + rng.normal(0, noise, (40, 2))).astype(np.float32), y)
    return from_arrays(clients, class_names=CLASSES, test=0.25)


def recorded(folder: Path, federation, model=None, *, rounds=3, resume=False, predictor=None, **changes) -> Recorder:
    task = fr.Task.of(Mlp(hidden=(4,)) if model is None else model, federation)
    algorithm = replace(fr.method(local=fr.Sgd(lr=0.1, batch=8), fraction=1.0), predictor=predictor)
    options = {"federation": federation, "rounds": rounds, "resume": resume} | changes
    recorder = Recorder(folder, algorithm, Inline(federation, task, seed=0), federation.test, **options)
    for _ in recorder.run():
        pass
    return recorder


@pytest.fixture(scope="module")
def run(federation, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("output") / "run"
    recorded(folder, federation)
    return folder


def plain_mlp() -> nn.Module:
    """What the run trained, written down by hand: names as in the state_dict."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(2, 4), nn.ReLU())
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.body(x))

    return Net()


# --- the model


def test_the_model_is_a_plain_state_dict_of_a_plain_module(run, federation):
    weights = torch.load(run / "model.pt", weights_only=True)
    assert type(weights) is dict
    assert all(type(each) is torch.Tensor and each.is_contiguous() for each in weights.values())
    assert [each.untyped_storage().nbytes() for each in weights.values()] == [
        each.numel() * each.element_size() for each in weights.values()
    ]
    network = plain_mlp()
    network.load_state_dict(weights)
    tested = fr.report.load(run).summary.final_accuracy
    right = network(federation.test.x).argmax(-1) == federation.test.y
    assert tested == pytest.approx(right.float().mean().item())


ALONE = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "fedrelay":
            raise ImportError("fedrelay is not here")
sys.meta_path.insert(0, Refuse())
import torch
from torch import nn

try:
    import fedrelay
except ImportError:
    pass
else:
    raise SystemExit("fedrelay was imported")

class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)
    def forward(self, x):
        return self.head(self.body(x))

folder = sys.argv[1]
facts = json.load(open(folder + "/model.json"))
network = Net(*facts["shape"], *facts["model"]["hidden"], facts["classes"])
network.load_state_dict(torch.load(folder + "/model.pt", weights_only=True))
x = torch.tensor(json.load(sys.stdin))
print(json.dumps([facts["class_names"][k] for k in network.eval()(x).argmax(-1).tolist()]))
"""


def test_the_model_predicts_where_there_is_no_fedrelay(run, federation):
    asked = json.dumps(federation.test.x.tolist())
    done = subprocess.run([sys.executable, "-c", ALONE, str(run)], input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = fr.load_model(run)(federation.test.x).argmax(-1).tolist()
    assert json.loads(done.stdout) == [CLASSES[k] for k in expected]


def test_what_is_to_be_known_of_the_model_is_beside_it(run):
    facts = json.loads((run / "model.json").read_text())
    assert facts["model"] == {"name": "mlp", "hidden": [4]}
    assert facts["shape"] == [2]
    assert facts["class_names"] == ["healthy", "ill"]
    assert facts["transform"] is facts["preparation"] is None
    assert facts["predicts"] == "one model"


def test_the_loaded_network_is_the_one_that_was_judged(run, federation):
    network = fr.load_model(run)
    assert not network.training
    right = (network(federation.test.x).argmax(-1) == federation.test.y).float().mean().item()
    assert fr.report.load(run).summary.final_accuracy == pytest.approx(right)


def test_the_scaling_of_images_is_beside_the_model(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3), dtype=np.uint8)
    pairs = [(pixels, np.arange(8) % 2)] * 2
    federation = from_arrays(pairs, transform=Normalise((0.1, 0.2, 0.3), (0.5, 0.5, 0.5)))
    recorded(tmp_path / "run", federation, Logistic(), rounds=1)
    trained = load_trained(tmp_path / "run")
    assert trained.transform == Normalise((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert (trained.shape, trained.facts["stored"]) == ((3, 4, 4), "uint8")


def test_a_transform_of_ones_own_is_named_and_not_guessed(tmp_path, federation):
    @dataclass(frozen=True)
    class Halved:
        draws = False

        def __call__(self, x, rng, /):
            return x / 2

    source = replace(federation.source, train=replace(federation.source.train, transform=Halved()))
    source = replace(source, test=replace(source.test, transform=Halved()))
    recorded(tmp_path / "run", replace(federation, source=source), rounds=1)
    with pytest.raises(BadInput, match=r"transform of your own \(Halved\)"):
        _ = load_trained(tmp_path / "run").transform


def test_what_a_table_was_prepared_with_is_beside_the_model(tmp_path, federation):
    class Prepared:
        def plain(self):
            return {"version": 1, "label": "Diagnose", "means": [0.5]}

        def read(self, source, /):
            raise NotImplementedError

    source = replace(federation.source, preparation=Prepared())
    recorded(tmp_path / "run", replace(federation, source=source), rounds=1)
    written = json.loads((tmp_path / "run" / "preparation.json").read_text())
    assert written == {"version": 1, "label": "Diagnose", "means": [0.5]}
    assert load_trained(tmp_path / "run").facts["preparation"] == "preparation.json"


class Tied(nn.Module):
    """Two layers that share their weights, and running statistics with a counter."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.last = (
            nn.Linear(2, 2),
            nn.BatchNorm1d(2),
            nn.Linear(2, 2),
            nn.Linear(2, 2),
        )
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x))).relu())


def test_a_network_of_ones_own_is_filled_tied_weights_and_statistics_too(tmp_path, federation):
    recorder = recorded(tmp_path / "run", federation, Own(Tied()))
    network = fr.load_model(tmp_path / "run", network=Tied())
    weights = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert torch.equal(weights["first.weight"], weights["second.weight"])
    with torch.no_grad():
        right = (network(federation.test.x).argmax(-1) == federation.test.y).float().mean().item()
    assert recorder.summary().final_accuracy == pytest.approx(right)
    with pytest.raises(BadInput, match=r"is your own \(Tied\).*network=…"):
        fr.load_model(tmp_path / "run")
    with pytest.raises(BadInput, match="of another network"):
        fr.load_model(tmp_path / "run", network=nn.Linear(2, 2))


def test_what_a_method_adds_to_the_model_is_there_too(tmp_path):
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "mlp", "hidden": [8]},
        "algorithm": {"name": "fedfusion", "operator": "multi"},
        "engine": {"name": "inline"},
    }
    list(config.build(tables).record(tmp_path / "run").run())
    weights = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert weights["body.fusion.share"].shape == (8,)
    network = fr.load_model(tmp_path / "run")
    assert network(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


class Both(nn.Module):
    """Two inputs by name."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(1, 2)

    def forward(self, lab, age):
        return self.a(lab) + self.b(age)


def test_a_network_of_several_inputs_is_filled_and_takes_them(tmp_path):
    rng = np.random.default_rng(0)
    x = {"lab": rng.normal(size=(20, 2)).astype(np.float32), "age": rng.normal(size=(20, 1)).astype(np.float32)}
    federation = from_arrays([(x, np.arange(20) % 2)] * 2)
    recorded(tmp_path / "run", federation, Own(Both()), rounds=1)
    network = fr.load_model(tmp_path / "run", network=Both())
    batch = {key: torch.from_numpy(part) for key, part in x.items()}
    assert torch.equal(network(batch), network(**batch))
    trained = load_trained(tmp_path / "run")
    assert trained.shape == {"lab": (2,), "age": (1,)}
    with pytest.raises(BadInput, match="takes several inputs, a table has only one"):
        trained.one_input("a table has")


def test_an_ensemble_is_one_state_dict_and_votes_when_it_is_loaded(tmp_path, federation):
    def predictor(state):
        return Ensemble((state.batons[0].params, -state.batons[0].params), (3.0, 1.0))

    recorded(tmp_path / "run", federation, predictor=predictor)
    weights = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    models = nn.ModuleList([plain_mlp(), plain_mlp()])
    models.load_state_dict(weights)
    x = federation.test.x
    with torch.no_grad():
        expected = 0.75 * models[0](x).softmax(-1) + 0.25 * models[1](x).softmax(-1)
        assert torch.allclose(fr.load_model(tmp_path / "run")(x).exp(), expected, atol=1e-6)
    assert json.loads((tmp_path / "run" / "model.json").read_text())["predicts"] == "ensemble"


def test_models_of_clients_are_there_by_name_and_judged_at_home(tmp_path, federation):
    def predictor(state):
        return PerClient(state.batons[0].params, {1: -state.batons[0].params})

    recorded(tmp_path / "run", federation, predictor=predictor)
    x = federation.test.x
    own, common = fr.load_model(tmp_path / "run", client="Basel"), fr.load_model(tmp_path / "run")
    weights = torch.load(tmp_path / "run" / "client_models.pt", weights_only=True)
    assert list(weights) == ["Basel"]
    assert set(weights["Basel"]) == set(common.state_dict())
    assert torch.equal(own.state_dict()["head.bias"], -common.state_dict()["head.bias"])
    rows = federation.source.test_owners == 1
    with torch.no_grad():
        right = (own(x[rows]).argmax(-1) == federation.test.y[rows]).float().mean().item()
    clients = read_clients(tmp_path / "run")
    assert clients is not None
    assert clients.clients[1].metrics["accuracy"] == pytest.approx(right)
    with pytest.raises(BadInput, match=r"no model of client 'Ulm' \(those with one of their own: Basel\)"):
        fr.load_model(tmp_path / "run", client="Ulm")


def test_of_a_client_whose_norm_layers_stay_at_home_only_these_are_written_twice(tmp_path):
    tables = {
        "rounds": 2,
        "data": {"name": "digits", "clients": 3, "client_tests": 0.1},
        "model": {"name": "mlp_norm"},
        "algorithm": {"name": "fedbn", "fraction": 1.0},
        "engine": {"name": "inline"},
    }
    recorder = config.build(tables).record(tmp_path / "run")
    list(recorder.run())
    weights = torch.load(tmp_path / "run" / "client_models.pt", weights_only=True)
    assert list(weights) == ["client 0", "client 1", "client 2"]
    norm = {f"body.2.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
    assert norm < set(torch.load(tmp_path / "run" / "model.pt", weights_only=True))
    assert all(set(own) == norm for own in weights.values())
    network = fr.load_model(tmp_path / "run", client="client 1")
    parts = recorder.federation.client_test(1)
    x, y = parts.examples.take(parts.rows)
    with torch.no_grad():
        right = (network(x).argmax(-1) == y).float().mean().item()
    clients = read_clients(tmp_path / "run")
    assert clients is not None
    assert clients.clients[1].metrics["accuracy"] == pytest.approx(right)


def test_a_run_that_settings_are_chosen_by_never_sees_a_test_example(tmp_path):
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 3, "client_tests": 0.1, "validation": 0.2},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg", "fraction": 1.0},
        "evaluate": {"on": "validation"},
        "engine": {"name": "inline"},
    }
    experiment = config.build(tables)
    list(experiment.record(tmp_path / "run").run())
    assert read_clients(tmp_path / "run") is None
    quality = read_quality(tmp_path / "run")
    assert sum(map(sum, quality.confusion)) == len(experiment.federation.validation)


def test_a_predictor_nobody_knows_leaves_its_models(tmp_path, federation):
    @dataclass(frozen=True)
    class Mine(fr.tasks.Predictor):
        params: torch.Tensor

        @property
        def vectors(self):
            return (self.params, self.params)

        def outputs(self, workspaces, /):
            return OneModel(self.params).outputs(workspaces)

    recorded(tmp_path / "run", federation, predictor=lambda state: Mine(state.batons[0].params))
    weights = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert torch.equal(weights["0.head.bias"], weights["1.head.bias"])
    with pytest.raises(BadInput, match="predicts by Mine"):
        fr.load_model(tmp_path / "run")


# --- clients and classes


def by_hand(folder: Path, federation) -> dict[str, float]:
    """The accuracy of every client, from the state_dict and who owns which test row."""
    network = plain_mlp()
    network.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
    right = (network(federation.test.x).argmax(-1) == federation.test.y).numpy()
    return {name: right[federation.source.test_owners == owner].mean() for owner, name in enumerate(NAMES)}


def test_every_client_is_judged_by_its_name_on_its_own_rows(run, federation):
    clients = read_clients(run)
    assert clients is not None
    found = {client.name: client.metrics["accuracy"] for client in clients.clients}
    assert found == pytest.approx(by_hand(run, federation))
    assert [(client.examples, client.tested) for client in clients.clients] == [(30, 10)] * 3


@pytest.mark.parametrize("batch", [1, 25, 1024])
def test_clients_that_go_through_the_network_together_are_judged_as_if_alone(run, federation, monkeypatch, batch):
    monkeypatch.setattr(testing, "EVALUATION_BATCH", batch)  # each alone, two together, all together
    task = fr.Task.of(Mlp(hidden=(4,)), federation)
    workspaces = fr.tasks.Workspaces(task)
    network = fr.load_model(run)
    params = torch.cat([each.flatten() for each in network.parameters()])
    clients = results.judge_clients(OneModel(params), federation, workspaces)
    assert clients is not None
    found = {client.name: client.metrics["accuracy"] for client in clients.clients}
    assert found == pytest.approx(by_hand(run, federation))
    losses = [
        nn.functional.cross_entropy(network(federation.test.x[rows]), federation.test.y[rows]).item()
        for rows in (federation.source.test_owners == owner for owner in range(3))
    ]
    assert [client.metrics["loss"] for client in clients.clients] == pytest.approx(losses, abs=1e-6)


def test_the_table_and_the_summary_say_the_same(run, federation):
    expected = by_hand(run, federation)
    rows = list(csv.DictReader((run / "clients.csv").read_text().splitlines()))
    assert {row["name"]: float(row["accuracy"]) for row in rows} == pytest.approx(expected)
    summary = fr.report.load(run).summary
    low, middle, high = sorted(expected.values())
    assert summary.clients["clients"] == 3
    assert summary.clients["worst"] == pytest.approx(low)
    assert summary.clients["p10"] == pytest.approx(low + 0.2 * (middle - low))
    assert summary.clients["p50"] == pytest.approx(middle)
    assert summary.clients["p90"] == pytest.approx(middle + 0.8 * (high - middle))
    assert json.loads((run / "clients.json").read_text())["spread"] == summary.clients


def test_the_confusion_matrix_and_the_calibration_are_those_of_the_test_set(run, federation):
    from sklearn.metrics import confusion_matrix

    quality = read_quality(run)
    network = plain_mlp()
    network.load_state_dict(torch.load(run / "model.pt", weights_only=True))
    with torch.no_grad():
        chances = network(federation.test.x).double().softmax(-1).numpy()
    expected = confusion_matrix(federation.test.labels, chances.argmax(1), labels=[0, 1])
    assert quality is not None
    assert quality.classes == CLASSES
    assert [list(row) for row in quality.confusion] == expected.tolist()
    right = chances.argmax(1) == federation.test.labels
    edges = [(low / 15, (low + 1) / 15) for low in range(15)]
    inside = [(chances.max(1) > low) & (chances.max(1) <= high) for low, high in edges]
    gaps = [abs(right[b].sum() - chances.max(1)[b].sum()) for b in inside]
    assert quality.calibration.error == pytest.approx(sum(gaps) / len(right))
    assert fr.report.load(run).summary.calibration_error == quality.calibration.error


def test_the_reference_on_pooled_data_is_judged_for_every_client_too(tmp_path):
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 4, "client_tests": 0.1},
        "model": {"name": "logistic"},
        "algorithm": {"name": "centralized"},
        "engine": {"name": "inline"},
    }
    list(config.build(tables).record(tmp_path / "run").run())
    clients = read_clients(tmp_path / "run")
    assert clients is not None
    assert [client.name for client in clients.clients] == ["client 0", "client 1", "client 2", "client 3"]


def test_a_run_whose_clients_have_no_test_parts_has_no_file_of_clients(tmp_path):
    tables = {
        "rounds": 1,
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "inline"},
    }
    list(config.build(tables).record(tmp_path / "run").run())
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert not there & {"clients.json", "clients.csv", "client_models.pt", "preparation.json"}
    assert {"model.pt", "model.json", "quality.json", "summary.json"} <= there
    assert fr.report.load(tmp_path / "run").summary.clients == {}


def test_a_run_without_a_test_set_has_a_model_and_no_figures(tmp_path, federation):
    source = replace(federation.source, test_owners=None)
    for name, test in (("none", None), ("empty", replace(federation.test, x=torch.empty(0, 2), y=torch.empty(0)))):
        task = fr.Task.of(Mlp(hidden=(4,)), federation)
        algorithm = fr.method(local=fr.Sgd(lr=0.1), fraction=1.0)
        options = {"rounds": 2, "federation": replace(federation, source=source)}
        recorder = Recorder(tmp_path / name, algorithm, Inline(federation, task, seed=0), test, **options)
        assert all(log.metrics == {} for log in recorder.run())
        summary = recorder.summary()
        assert summary.accuracy is summary.calibration_error is None
        assert not (tmp_path / name / "quality.json").exists()
        fr.load_model(tmp_path / name)


def test_examples_without_one_class_each_are_not_confused(tmp_path):
    tables = {
        "rounds": 1,
        "data": {"name": "quadratic", "clients": 3},
        "model": {"name": "quadratic"},
        "algorithm": {"name": "fedavg", "fraction": 1.0},
        "engine": {"name": "inline"},
    }
    list(config.build(tables).record(tmp_path / "run").run())
    assert not (tmp_path / "run" / "quality.json").exists()
    assert load_trained(tmp_path / "run").tells_classes is False


# --- again


def test_a_run_that_goes_on_for_more_rounds_has_the_files_of_its_new_end(tmp_path, federation):
    recorded(tmp_path / "parts", federation, rounds=2)
    before = (tmp_path / "parts" / "model.pt").read_bytes()
    recorded(tmp_path / "parts", federation, rounds=4, resume=True)
    recorded(tmp_path / "whole", federation, rounds=4)
    assert (tmp_path / "parts" / "model.pt").read_bytes() != before
    for name in ("model.pt", "model.json", "clients.json", "clients.csv", "quality.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_while_a_run_goes_on_the_files_of_its_first_end_are_gone(tmp_path, federation):
    recorder = recorded(tmp_path / "run", federation, rounds=2)
    going = replace(recorder, rounds=5, resume=True)
    for log in going.run():
        if log.round == 3:
            break
    assert not {path.name for path in (tmp_path / "run").iterdir()} & set(AT_THE_END)
    with pytest.raises(BadInput, match="is not finished, so it has no model to use yet"):
        fr.load_model(tmp_path / "run")


def test_a_finished_run_without_its_files_writes_them_when_it_is_resumed(tmp_path, federation):
    recorded(tmp_path / "run", federation, rounds=2)
    wanted = (tmp_path / "run" / "model.pt").read_bytes()
    for name in ("model.pt", "model.json", "clients.json"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(BadInput, match=r"has no model\.pt: .* --resume"):
        fr.load_model(tmp_path / "run")
    recorded(tmp_path / "run", federation, rounds=2, resume=True)
    assert (tmp_path / "run" / "model.pt").read_bytes() == wanted
    assert read_clients(tmp_path / "run") is not None


def test_damaged_files_are_refused_by_name(tmp_path, federation):
    recorded(tmp_path / "run", federation, rounds=1)
    for name, read in (("clients.json", read_clients), ("quality.json", read_quality)):
        (tmp_path / "run" / name).write_text('{"clients": 3')
        with pytest.raises(BadInput, match=rf"{name} is damaged"):
            read(tmp_path / "run")
    (tmp_path / "run" / "model.pt").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"model\.pt is damaged"):
        fr.load_model(tmp_path / "run")
    (tmp_path / "run" / "model.json").write_text("[")
    with pytest.raises(BadInput, match=r"model\.json is damaged"):
        fr.load_model(tmp_path / "run")
    with pytest.raises(BadInput, match="is not a run folder"):
        fr.load_model(tmp_path / "nowhere")
