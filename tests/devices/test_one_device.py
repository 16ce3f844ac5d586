"""No operator mixes devices, and nothing is copied in silence: whole runs on a made-up device, whose arithmetic is the
processor's, so that they end with the processor's bits."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pretended import NAME, Answers, DevicesMixed, pretended

from fedrelay import config, method, train
from fedrelay.data import Examples, Federation, Iid, Source
from fedrelay.data.augment import Augment, Normalise
from fedrelay.data.stores.on_device import OnDevice
from fedrelay.data.synthetic import synthetic
from fedrelay.engines import Inline
from fedrelay.kernels.workspace import Computing
from fedrelay.merges import MERGES
from fedrelay.merges.trust import Trust
from fedrelay.models import CharLstm, ClusteredCnn, Mlp
from fedrelay.runs.record import Recorder
from fedrelay.studies.doctor import on_devices
from fedrelay.system import devices
from fedrelay.tasks import METRICS, Task, Workspaces, evaluate
from fedrelay.tasks.metrics import Form
from fedrelay.types import Baton, Chain, Outcome, Report, State
from fedrelay.visits import Sgd
from fedrelay.visits.noise import PerExample

# --- the made-up device itself


def test_the_made_up_device_refuses_what_a_gpu_would_refuse_or_do_in_silence(there: Answers):
    here, gone = torch.ones(3), torch.ones(3, device=NAME)
    assert (here.device.type, gone.device.type) == ("cpu", NAME)
    assert (gone * 2).sum().device.type == torch.zeros_like(gone).device.type == gone.view(3, 1).device.type == NAME
    for mixing in (
        lambda: here + gone,
        lambda: gone * torch.tensor(2.0),  # a GPU would take it, and wait for it
        lambda: gone[torch.tensor([0])],
        lambda: here.copy_(gone),
        lambda: here.__setitem__(slice(0, 3), gone),
        lambda: torch.cat((here, gone)),
        lambda: gone.numpy(),
        lambda: np.asarray(gone),
    ):
        with pytest.raises(DevicesMixed):
            mixing()
    gone[:] = 0.5
    assert gone.cpu().tolist() == [0.5, 0.5, 0.5]
    assert there.brought_back == [3]


def test_the_made_up_device_has_as_much_room_as_what_is_there_leaves(known: None):
    with pretended(room=1000):
        gone = torch.ones(100, device=NAME)
        assert devices.free(gone.device) == 600
        del gone
        assert devices.free(torch.device(NAME, 0)) == 1000


# --- every method


@pytest.mark.parametrize("name", on_devices.checks())
def test_a_method_computes_on_one_device_to_the_bits_of_the_processor(name: str, known: None):
    run = on_devices.run_of(name)
    expected = run("cpu")
    with pretended() as there:
        found = run(NAME)
    if name in (on_devices.CONVOLUTIONS, on_devices.STACKED):  # which have ways of their own on a processor
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    else:
        assert torch.equal(found, expected)
    # The result is all that has left the device: of everything else only a few numbers.
    assert sum(numbers for numbers in there.brought_back if numbers > 1000) == len(found)


def test_every_merge_stays_on_its_device(there: Answers):
    models = torch.from_numpy(np.random.default_rng(0).standard_normal((8, 40), dtype=np.float32))
    for name in MERGES:
        found = [merged(name, models.to(device)).cpu() for device in ("cpu", NAME)]
        assert torch.equal(*found), name


def merged(name: str, models: torch.Tensor) -> torch.Tensor:
    merge = MERGES[name]()
    if isinstance(merge, Trust):
        federation = on_devices.clients()
        task = Task.of(Mlp(hidden=(1,)), federation)
        vectors = torch.cat([models] * 10, dim=1)[:, : task.layout.size]
        models = vectors if vectors.shape[1] == task.layout.size else task.init(0).to(models.device) + models[:, :1]
        merge = replace(merge, root=federation.source.train, local=Sgd(batch=8), task=task, examples=8)
    start = Baton(models[0])
    shared, server = merge.init(models[0], 10)
    state = State(0, (start,), shared, server, {}, examples=8, trainable=models.shape[1])
    outcomes = [Outcome(Chain(start, (n,)), Baton(model, 1.0), (Report(n, 1),)) for n, model in enumerate(models)]
    return merge(state, outcomes).batons[0].params


# --- whole runs, with all that may be around a method

TABLES: dict[str, Any] = {
    "rounds": 2,
    "checkpoint": 1,
    "data": {
        "name": "synthetic",
        "examples": 60,
        "test_examples": 20,
        "shape": [1, 16, 16],
        "classes": 4,
        "clients": 6,
    },
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 5, "lr": 0.05},
    "algorithm": {"name": "fedavg", "fraction": 0.5},
}
GROUPS = {"name": "fedseq", "max_clients": 2, "grouper": "greedy"}
HALF = {"name": "share", "share": 0.5}
AROUND: dict[str, dict[str, Any]] = {
    "adam, clipping, a validation part and the best epoch": {
        "local": {"optimiser": "adam", "clip": 1.0, "validation": 0.3, "keep": "best", "epochs": 2, "batch": 5}
    },
    "momentum that stays at clients, beyond what is kept in memory": {
        "local": {"momentum": 0.5, "carry_momentum": True, "batch": 5},
        "engine": {"memory_limit": 0.001},
    },
    "noise on a visit": {"algorithm": {"name": "fedavg", "privacy": {"level": "client", "noise": 0.1, "clip": 1.0}}},
    "terms that look at batches": {"local": {"batch": 5, "terms": ["distillation", "proximal", "sharpness"]}},
    "groups by classifier weights": {"algorithm": GROUPS | {"traits": "classifier"}},
    "groups by confidence": {"data": {"exemplars": 2}, "algorithm": GROUPS | {"traits": "confidence"}},
    "groups by task2vec": {
        "algorithm": GROUPS | {"traits": {"name": "task2vec", "probe": "model", "epochs": 1, "samples": 20, "draws": 2}}
    },
    "clients drawn by similarity": {"algorithm": {"name": "fedavg", "fraction": 0.5, "sampler": "by_similarity"}},
    "flipped labels": {"attack": {"name": "labels", "who": HALF}},
    "a backdoor": {"attack": {"name": "backdoor", "who": HALF}},
    "noise of attackers": {"attack": {"name": "noise", "who": HALF}},
    "images recovered by a GAN": {"attack": {"name": "recovery", "epochs": 1, "width": 4, "images": 4, "who": HALF}},
    "chains that collude": {
        "attack": {"name": "mimic", "who": HALF},
        "algorithm": {"name": "fedavg", "fraction": 1.0, "merge": "geometric_median"},
    },
    "models bounded and skipped": {
        "algorithm": {
            "name": "fedseq",
            "max_clients": 3,
            "defence": {"bound": 0.1, "tolerance": 1.0, "agreement": -1.0},
        }
    },
    "every client evaluated": {"evaluate": {"clients_every": 1}, "algorithm": {"name": "fedper", "fraction": 1.0}},
}


@pytest.mark.parametrize("what", AROUND)
def test_a_whole_run_on_a_device_has_the_bits_of_the_processor(what: str, known: None, tmp_path):
    expected = in_folder(AROUND[what], tmp_path / "cpu", "cpu").summary()
    with pretended():
        found = in_folder(AROUND[what], tmp_path / NAME, NAME).summary()
    assert found.params_sha256 == expected.params_sha256
    assert found.final == expected.final


def in_folder(changes: dict[str, Any], folder, device: str) -> Recorder:
    tables = {**TABLES, **changes, "engine": {"name": "inline", "device": device, **changes.get("engine", {})}}
    tables["data"] = {**TABLES["data"], **changes.get("data", {})}
    recorder = config.build(tables).record(folder)
    for log in recorder.run():
        assert not log.drops
    return recorder


def test_noise_in_every_step_is_added_on_the_device(there: Answers):
    federation = on_devices.clients()
    task, local = Task.of(Mlp(hidden=(8,)), federation), Sgd(batch=5, per_example=PerExample(1.0, 0.5))
    engines = [Inline(federation, task, 1, device=device) for device in ("cpu", NAME)]
    found = [next(train(method(local=local), engine, rounds=1)).batons[0].params.cpu() for engine in engines]
    assert torch.equal(*found)


def test_dropout_draws_on_the_device_and_the_same_every_time(there: Answers):
    source = synthetic(examples=20, test_examples=5, shape=(1, 18, 18), classes=4)
    federation = Federation.split(source, Iid(), 2)
    task = Task.of(ClusteredCnn(), federation)
    engines = [Inline(federation, task, 1, device=NAME) for _ in range(2)]
    found = [next(iter(train(method(local=Sgd(batch=5)), engine, rounds=1))).batons[0].params for engine in engines]
    assert torch.equal(*found)


def test_sequences_and_their_padding_are_trained_and_judged_on_the_device(there: Answers):
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, 12, (24, 6)))
    examples = Examples(tokens, tokens.roll(-1, 1).masked_fill(tokens == 0, -100))
    federation = Federation.split(Source("tokens", examples, examples, 12), Iid(), 3)
    task = Task.of(CharLstm(hidden=8, layers=1, every_step=True), federation)
    found = []
    for device in ("cpu", NAME):
        engine = Inline(federation, task, 1, device=device)
        *_, state = train(method(local=Sgd(batch=4)), engine, rounds=1)
        workspaces = Workspaces(task, computing=Computing(engine.device))
        found.append((state.batons[0].params.cpu(), evaluate(state.batons[0].params, federation.test, workspaces)))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


# --- examples


BYTES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (20, 8, 6, 3), dtype=np.uint8))


@pytest.mark.parametrize("transform", [None, Normalise((0.5,), (0.2,)), Augment(padding=2)])
@pytest.mark.parametrize("stored", [BYTES, BYTES.float() / 255], ids=["bytes", "floats"])
def test_examples_are_laid_on_the_device_as_they_are_stored_and_scaled_there(transform, stored, there: Answers):
    examples = Examples(stored, torch.arange(20) % 4, transform)
    laid = examples.on(torch.device(NAME, 0))
    assert isinstance(laid, OnDevice)
    assert laid is examples.on(torch.device(NAME, 0))  # once, for all who ask
    assert laid.laid is not None
    assert laid.laid.x.dtype == stored.dtype
    rows = torch.tensor([3, 1, 19, 3])
    for draw in (None, 7):
        rng = [None if draw is None else np.random.default_rng(draw) for _ in range(2)]
        (x, y), (expected, targets) = laid.take(rows, rng[0]), examples.take(rows, rng[1])
        assert x.device.type == y.device.type == NAME
        assert torch.equal(x.cpu(), expected)
        assert torch.equal(y.cpu(), targets)
    some = laid.picked(rows)
    assert torch.equal(some.take(slice(0, 2))[1].cpu(), examples.y[rows[:2]])
    assert (some.labels == examples.labels[rows.numpy()]).all()
    assert len(pickle.dumps(laid)) > 0


def test_what_cannot_be_laid_is_sent_batch_by_batch(there: Answers):
    class Own:
        def __call__(self, x, rng):
            return torch.from_numpy(x.numpy() * 2.0)  # as a user's transform may do

    examples = Examples(BYTES.float(), torch.arange(20), Own())
    gone = examples.on(torch.device(NAME, 0))
    x, y = gone.take(torch.tensor([4, 5]))
    assert gone.laid is None
    assert x.device.type == y.device.type == NAME
    assert torch.equal(x.cpu(), examples.take(torch.tensor([4, 5]))[0])


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_judges_answers_on_the_device(name: str, there: Answers):
    rng = np.random.default_rng(2)
    metric = METRICS[name]()
    form = Form(metric.forms[0], 6)
    answers = torch.from_numpy(rng.standard_normal((30, 6) if form.name in ("classes", "labels") else 30)).float()
    targets = torch.from_numpy(rng.integers(0, 6 if form.name == "classes" else 2, 30))
    targets = (answers > 0) if form.name == "labels" else targets.float() if form.name == "numbers" else targets
    found = []
    for device in ("cpu", NAME):
        tally = metric.tally(form)
        tally.add(answers.to(device), targets.to(device))
        found.append(tally.value())
    assert found[0] == found[1]
