"""Which device a run computes on, what it needs there, and what is said when it cannot."""

from __future__ import annotations

import logging
import re
import time
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import tomli_w
import torch
from pretended import NAME, Answers, Module, pretended, tensors_in
from test_one_device import TABLES, in_folder
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedrelay import BadInput, config, method, train
from fedrelay.algorithms import ALGORITHMS, scaffold
from fedrelay.cli.main import main
from fedrelay.data import Federation, Iid
from fedrelay.data.stores.on_device import bytes_there
from fedrelay.data.synthetic import synthetic
from fedrelay.engines import Auto, Inline, Pool, Stacked, bits
from fedrelay.engines.pool.engine import check_alike
from fedrelay.engines.pool.worker import moved
from fedrelay.engines.pool.workers import WorkerPool
from fedrelay.engines.relay import Context, Simulation
from fedrelay.engines.room import Wanted, parts_of
from fedrelay.engines.sample import Sample
from fedrelay.errors import SAID, RunFailed
from fedrelay.kernels.workspace import Computing
from fedrelay.models import LeNet5, Mlp, Own
from fedrelay.studies.doctor import on_devices
from fedrelay.studies.doctor.machine import machine
from fedrelay.system import devices
from fedrelay.tasks import Task
from fedrelay.types import Baton, Chain, Report, Work
from fedrelay.visits import Sgd
from fedrelay.visits.training import Training

FEDERATION = on_devices.clients()
TASK = Task.of(Mlp(hidden=(8,)), FEDERATION)


def models(algorithm, engine, rounds: int = 2) -> list[torch.Tensor]:
    return [state.batons[0].params.cpu() for state in train(algorithm, engine, rounds=rounds)]


# --- which


def test_a_machine_without_gpus_has_its_processor_and_auto_takes_that():
    assert devices.found() == ["cpu"] or torch.accelerator.is_available()
    if devices.found() == ["cpu"]:
        assert devices.find("auto") == torch.device("cpu")


@pytest.mark.parametrize("engine", [Inline, Stacked, Auto])
def test_the_processor_by_name_is_the_default_to_the_bit(engine):
    found = [models(method(local=Sgd(batch=5)), engine(FEDERATION, TASK, 1, **how)) for how in ({}, {"device": "cpu"})]
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_a_device_that_is_not_there_is_refused_with_those_that_are(tmp_path, capsys):
    missing = next(kind for kind in devices.KINDS if not devices.count(kind))
    with pytest.raises(BadInput, match=f"device '{missing}' is not there: this machine has cpu"):
        Inline(FEDERATION, TASK, device=missing)
    with pytest.raises(BadInput, match="device must be one of auto, cpu, cuda, xpu, mps, cuda:1, not 'gpu'"):
        Inline(FEDERATION, TASK, device="gpu")
    with pytest.raises(BadInput, match=r"not there: this machine has cpu"):
        Pool(FEDERATION, TASK, device=f"{missing}:7")
    file = tmp_path / "a.toml"
    file.write_text(tomli_w.dumps(TABLES))
    assert main(["run", str(file), "--set", f"engine.device={missing}"]) == 2
    assert "[engine]: device" in capsys.readouterr().err


def test_a_number_beyond_those_that_are_there_is_refused(there: Answers):
    with pytest.raises(BadInput, match=rf"{NAME}:1' is not there: this machine has cpu, {NAME}:0"):
        Inline(FEDERATION, TASK, device=f"{NAME}:1")


def test_auto_takes_the_first_kind_that_is_there_and_the_configuration_says_which(there: Answers, tmp_path):
    assert devices.find("auto").type == NAME
    experiment = config.build({**TABLES, "engine": {"name": "inline", "device": "auto"}})
    assert experiment.tables["engine"]["device"] == NAME
    recorder = in_folder({}, tmp_path / "run", "auto")
    assert tomllib.loads((recorder.path / "config.toml").read_text())["engine"]["device"] == NAME


def test_the_device_precision_and_compilation_are_part_of_the_bits():
    plain = bits({"name": "inline"})
    assert plain == bits({"name": "pool", "device": "cpu", "precision": "float32", "compile": False})
    for other in ({"device": "cuda"}, {"precision": "bf16"}, {"compile": True}):
        assert bits({"name": "inline", **other}) != plain
    assert bits({"name": "inline", "device": "cuda:1"}) == bits({"name": "pool", "device": "cuda"})


def test_the_engine_that_chooses_does_so_among_what_the_device_can(there: Answers):
    engine = Auto(FEDERATION, TASK, 1, device=NAME)
    assert engine.settings == {"name": "auto", "device": NAME}
    models(method(local=Sgd(batch=5), fraction=1.0), engine, rounds=1)
    assert engine.settings["device"] == NAME
    assert engine.settings["name"] in ("inline", "stacked")
    assert not engine.settings.get("native")
    again = Auto(FEDERATION, TASK, 1, device=NAME)
    again.choose(engine.settings)
    assert again.settings == engine.settings


def test_auto_measures_a_device_until_it_has_done_what_it_was_told(there: Answers, monkeypatch):
    """A GPU computes while the interpreter goes on, or while it waits: neither shows in its own time on a core."""
    told: list[float] = []
    monkeypatch.setattr(Module, "synchronize", lambda self, device=None: [time.sleep(told.pop()) for _ in tuple(told)])

    class Tells(Sgd):
        def __call__(self, baton, visit, /):
            told.append(0.02)
            return super().__call__(baton, visit)

        def together(self, batons, visits, /):
            told.append(0.02)
            return super().together(batons, visits)

    chains = [Chain(Baton(TASK.init(0).to(NAME)), (client,)) for client in range(6)]
    simulation = Simulation(FEDERATION, TASK, 0, computing=Computing.of(NAME))
    sample = Sample(simulation, Context(Tells(batch=5), {}, 1), chains, {})
    assert sample.one_by_one(1) * 6 > 0.02  # every client has six examples
    assert sample.together(3) * 18 > 0.02
    assert not told


# --- going on


def test_a_run_goes_on_on_its_device_to_the_same_bits_and_on_another_only_if_that_is_said(there: Answers, tmp_path):
    whole = in_folder({"algorithm": {"name": "scaffold"}}, tmp_path / "whole", NAME).summary().params_sha256
    half = {"algorithm": {"name": "scaffold"}, "rounds": 1}
    in_folder(half, tmp_path / "parts", NAME)
    tables = {**TABLES, "algorithm": {"name": "scaffold"}, "engine": {"name": "inline", "device": NAME}}
    recorder = config.build(tables).record(tmp_path / "parts", resume=True)
    assert [log.round for log in recorder.run()] == [1, 2]
    assert recorder.summary().params_sha256 == whole

    in_folder(half, tmp_path / "other", NAME)
    elsewhere = config.build({**tables, "engine": {"name": "inline", "device": "cpu"}})
    with pytest.raises(BadInput, match=f"began on {NAME}, and would go on on cpu"):
        elsewhere.record(tmp_path / "other", resume=True)
    recorder = elsewhere.record(tmp_path / "other", resume=True, other_device=True)
    assert [log.round for log in recorder.run()] == [1, 2]
    assert recorder.summary().params_sha256 == whole  # because this device is made up
    assert tomllib.loads((recorder.path / "config.toml").read_text())["engine"]["device"] == "cpu"


def test_a_state_of_another_device_is_refused_unless_it_is_wanted(there: Answers):
    algorithm = method(scaffold(), local=Sgd(batch=5))
    engine = Inline(FEDERATION, TASK, 1)
    *_, state = train(algorithm, engine, rounds=1)
    gone = Inline(FEDERATION, TASK, 1, device=NAME)
    gone.remember(*engine.memories())
    with pytest.raises(BadInput, match=rf"computed on cpu up to round 1 and would go on on {NAME} \(made up\)"):
        next(train(algorithm, gone, rounds=2, state=state))
    after = next(train(algorithm, gone, rounds=2, state=state, other_device=True))
    assert after.device == f"{NAME} (made up)"
    assert torch.equal(
        after.batons[0].params.cpu(), next(train(algorithm, engine, rounds=2, state=state)).batons[0].params
    )


# --- room


def refusal(algorithm, engine) -> str:
    """What is said, of which no tensor is kept."""
    try:
        models(algorithm, engine)
    except BadInput as error:
        return str(error)
    return pytest.fail("it was not refused")


def test_a_run_that_does_not_fit_is_refused_before_anybody_trains_with_what_it_needs(monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    task = Task.of(LeNet5(), FEDERATION)
    model = task.layout.size * 4
    algorithm = method(scaffold(), local=Sgd(batch=10), fraction=1.0)
    with pretended(room=12 * model):
        said = refusal(algorithm, Inline(FEDERATION, task, 1, device=NAME))
    assert re.search(r"needs about .* MB on pretended:0, where .* MB are free", said)
    assert "what clients keep" in said
    assert 'device = "cpu"' in said
    with pretended(room=26 * model):
        said = refusal(algorithm, Inline(FEDERATION, task, 1, device=NAME))
    limit = float(re.search(r"would fit with .*, or with memory_limit = ([\d.]+) \(megabytes", said)[1])
    with pretended(room=26 * model):
        models(algorithm, Inline(FEDERATION, task, 1, device=NAME, memory_limit=limit), rounds=1)  # and it does


def test_examples_that_lie_there_already_are_not_counted_again(monkeypatch, caplog):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    federation, algorithm = on_devices.clients.__wrapped__(), method(local=Sgd(batch=5), fraction=1.0)
    rest = sum(part.bytes for part in parts_of(Wanted(federation, TASK, algorithm.update, 6, 6)))
    source = federation.source
    examples = sum(map(bytes_there, (source.train, source.test)))
    with pretended(room=rest + examples + 4 * TASK.layout.size * 4), caplog.at_level(logging.WARNING, "fedrelay"):
        for _ in range(2):
            models(algorithm, Stacked(federation, TASK, 1, device=NAME), rounds=1)
    assert source.train.on(torch.device(NAME, 0)).laid is not None
    with pretended(room=bytes_there(source.train)), caplog.at_level(logging.WARNING, "fedrelay"):
        Inline(federation, TASK, 1, device=NAME)
    assert not caplog.text


def test_fewer_rows_of_a_stack_are_what_would_fit(monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    model = TASK.layout.size * 4
    local = Sgd(batch=5)
    with pretended(room=46 * model):
        said = refusal(method(local=local, fraction=1.0), Stacked(FEDERATION, TASK, 1, device=NAME))
    rows = int(re.search(r"would fit with rows = (\d+)", said)[1])
    with pretended(room=46 * model):
        models(method(local=local, fraction=1.0), Stacked(FEDERATION, TASK, 1, device=NAME, rows=rows), rounds=1)


class Tangent(nn.Module):
    """No sequence of known layers, with a frozen part that must come along."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(256, 8), nn.Linear(8, 4)
        self.frozen = nn.Linear(256, 8).requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.head((self.body(x) + self.frozen(x)).tanh())


def test_networks_that_are_no_sequences_stack_there_too(monkeypatch, caplog):
    SAID.clear()
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    federation, algorithm = on_devices.clients.__wrapped__(), method(local=Sgd(batch=5, lr=0.1), fraction=1.0)
    task = Task.of(Own(Tangent()), federation)
    assert task.stacks
    assert not task.written
    wanted = models(algorithm, Stacked(federation, task, 1))
    with pretended(), caplog.at_level(logging.WARNING, "fedrelay"):
        found = models(algorithm, Stacked(federation, task, 1, device=NAME))
    assert "one by one" not in caplog.text
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_auto_leaves_out_stacks_that_find_no_room_and_does_what_inline_can(monkeypatch, caplog):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    monkeypatch.setattr(Sample, "together", lambda self, rows: pytest.fail("it measured what does not fit"))
    federation, algorithm = on_devices.clients.__wrapped__(), method(local=Sgd(batch=5), fraction=1.0)
    with pretended(room=46 * TASK.layout.size * 4), caplog.at_level(logging.WARNING, "fedrelay"):
        engine = Auto(federation, TASK, 1, device=NAME)
        models(algorithm, engine)
    assert engine.settings["name"] == "inline"
    assert "stacks are not used: this run needs about" in caplog.text


def test_a_stack_for_which_there_was_room_is_not_looked_at_again_when_some_of_it_is_there(monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    monkeypatch.setattr(Sample, "one_by_one", lambda self, threads: 1.0)
    monkeypatch.setattr(Sample, "together", lambda self, rows: kept.append(torch.ones(10_000, device=NAME)) or 0.1)
    federation, algorithm, kept = on_devices.clients.__wrapped__(), method(local=Sgd(batch=5), fraction=1.0), []
    rest = sum(part.bytes for part in parts_of(Wanted(federation, TASK, algorithm.update, 6, 6)))
    examples = sum(map(bytes_there, (federation.source.train, federation.source.test)))
    with pretended(room=rest + examples):
        engine = Auto(federation, TASK, 1, device=NAME)
        models(algorithm, engine)
    assert engine.settings["name"] == "stacked"


def test_a_run_for_which_no_way_has_room_is_refused_by_auto_before_anybody_trains(monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    monkeypatch.setattr(Sample, "__init__", lambda *arguments: pytest.fail("it measured"))
    with pretended(room=12 * TASK.layout.size * 4):
        said = refusal(method(local=Sgd(batch=5), fraction=1.0), Auto(FEDERATION, TASK, 1, device=NAME))
    assert "this run needs about" in said


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("Tried to allocate 20.00 GiB."),
        NotImplementedError("Could not run 'aten::bmm' with arguments from the 'XPU' backend."),
    ],
)
def test_stacks_that_fail_on_the_device_while_they_are_measured_are_left_out(error, there: Answers, monkeypatch):
    def fails(self, batons, visits, /):
        raise error

    monkeypatch.setattr(Training, "together", fails)
    engine = Auto(FEDERATION, TASK, 1, device=NAME)
    models(method(local=Sgd(batch=5), fraction=1.0), engine)
    assert engine.settings["name"] == "inline"


@pytest.mark.parametrize(("copies", "expected"), [(1, ["inline"]), (2, ["inline", "pool"])])
def test_several_gpus_are_taken_by_auto_only_where_workers_find_room_for_their_examples(copies, expected, monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    monkeypatch.setattr(Sample, "one_by_one", lambda self, threads: 1.0)
    federation, work = on_devices.clients.__wrapped__(), method(local=Sgd(batch=5)).update
    rest = sum(part.bytes for part in parts_of(Wanted(federation, TASK, work, 6)))
    examples = sum(map(bytes_there, (federation.source.train, federation.source.test)))
    with pretended(count=2, room=rest + copies * examples):
        engine = Auto(federation, TASK, 1, device=NAME)
        chains = [Chain(Baton(TASK.init(0)), (client,)) for client in range(6)]
        ways = engine._measured(Context(work, {}, 1), chains)
    assert [way.name for way in ways] == expected


def test_examples_that_find_no_room_stay_in_main_memory_to_the_same_bits(monkeypatch, caplog):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    source = synthetic(examples=400, test_examples=4, shape=(1, 16, 16), classes=4)
    federation = Federation.split(source, Iid(), 40)
    algorithm = method(local=Sgd(batch=5), fraction=0.1)
    with pretended(room=source.train.x.numel() * 4), caplog.at_level(logging.WARNING, "fedrelay"):
        found = models(algorithm, Inline(federation, TASK, 1, device=NAME))
        assert source.train.on(torch.device(NAME, 0)).laid is None
    assert "the examples stay in main memory" in caplog.text
    assert all(torch.equal(*pair) for pair in zip(found, models(algorithm, Inline(federation, TASK, 1)), strict=True))


# --- what a device lacks


class Fails(Work):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, baton, visit):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            NotImplementedError("The operator 'aten::_linalg_eigh' is not currently implemented for the MPS device."),
            "has no operator aten::_linalg_eigh: ",
        ),
        (
            NotImplementedError("Could not run 'aten::foo.out' with arguments from the 'XPU' backend."),
            "has no operator aten::foo.out: ",
        ),
        (
            RuntimeError("adaptive_avg_pool2d_backward_cuda does not have a deterministic implementation, but you set"),
            "has no operator adaptive_avg_pool2d_backward_cuda that repeats its bits: ",
        ),
        (RuntimeError("\"addmm_impl\" not implemented for 'Half'"), "has no operator addmm_impl for these numbers: "),
        (
            TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."),
            "has no operators for float64: ",
        ),
        (torch.OutOfMemoryError("Tried to allocate 20.00 GiB."), "ran out of memory, of which 16.0 GB are free now"),
    ],
)
def test_an_operator_that_a_device_lacks_ends_the_run_by_its_name(error, said, there: Answers):
    engine = Inline(FEDERATION, TASK, 1, device=NAME)
    chains = [on_devices_chain(engine)]
    with pytest.raises(RunFailed, match=f"{NAME}:0 {said}".replace("(", r"\(")) as found:
        list(engine.run(Fails(error), chains, {}, 1))
    assert "batch" in str(found.value) or 'device = "cpu"' in str(found.value)
    assert devices.lacking(error, torch.device("cpu")) is None


def on_devices_chain(engine):
    return Chain(Baton(engine.task.init(0).to(engine.device)), (0,))


def test_on_apples_gpus_the_way_out_by_the_processor_is_named():
    error = NotImplementedError("The operator 'aten::foo' is not currently implemented for the MPS device.")
    said = str(devices.lacking(error, torch.device("mps")))
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1" in said


def test_other_errors_of_a_client_are_its_own(there: Answers):
    engine = Inline(FEDERATION, TASK, 1, device=NAME)
    (outcome,) = engine.run(Fails(ValueError("mine")), [on_devices_chain(engine)], {}, 1)
    assert "mine" in outcome.dropped[0].reason


# --- several GPUs


def test_a_pool_has_one_worker_for_each_gpu_and_one_that_is_lost_gives_its_place(monkeypatch):
    monkeypatch.setattr(devices, "KINDS", (NAME,))
    with pretended(count=3):
        engine = Pool(FEDERATION, TASK, device=NAME)
        assert engine.workers == 3
        assert engine.device == torch.device(NAME, 0)
        assert Pool(FEDERATION, TASK, device=f"{NAME}:2").device == torch.device(NAME, 2)

        made = []

        class Worker:
            def __init__(self, folder, number, setup, device, home):
                self.device, self.home, self.job = device, home, None
                made.append(self)

            def dismiss(self): ...
            def end(self): ...

        monkeypatch.setattr("fedrelay.engines.pool.workers.Worker", Worker)
        pool = WorkerPool(Simulation(FEDERATION, TASK, 1), [torch.device(NAME, number) for number in range(3)])
        for _ in range(3):
            pool._start()
        assert [one.device.index for one in made] == [0, 1, 2]
        assert {one.home for one in made} == {torch.device(NAME, 0)}
        pool.workers.remove(made[1])
        pool._start()
        assert made[-1].device.index == 1
        pool.end()
        there = moved(Simulation(FEDERATION, TASK, 1), torch.device(NAME, 2))
        assert there.computing.device == torch.device(NAME, 2)


def test_gpus_that_are_not_alike_are_refused_together(monkeypatch):
    monkeypatch.setattr("fedrelay.engines.pool.engine.title", lambda device: f"card {device.index}")
    with pytest.raises(BadInput, match="not alike, so that bits would be chance"):
        check_alike([torch.device("cuda", 0), torch.device("cuda", 1)])


def test_what_lies_on_a_gpu_goes_through_main_memory_to_the_receivers_device(there: Answers, tmp_path):
    from fedrelay.engines.packing import Receiver, Sender

    tree = {"baton": torch.arange(5.0).to(NAME), "rows": torch.arange(3)}
    message = Sender(tmp_path, "a").send(tree)
    for device in (None, torch.device("cpu")):
        found = Receiver(device).receive(message, copy=True)
        assert found["baton"].device.type == ("cpu" if device else NAME)
        assert found["rows"].device.type == "cpu"
        assert found["baton"].cpu().tolist() == [0, 1, 2, 3, 4]


# --- precision, compilation, and what does not go with a device


def test_bf16_rounds_the_steps_and_nothing_else():
    algorithm = method(local=Sgd(batch=5))
    exact, rounded, again = (
        models(algorithm, Inline(FEDERATION, TASK, 1, precision=precision)) for precision in ("float32", "bf16", "bf16")
    )
    assert rounded[-1].dtype == torch.float32
    assert torch.equal(rounded[-1], again[-1])
    assert not torch.equal(rounded[-1], exact[-1])
    torch.testing.assert_close(rounded[-1], exact[-1], atol=0.01, rtol=0.1)


@pytest.mark.parametrize("precision", ["float16", "fp16", "bfloat16", ""])
@pytest.mark.parametrize("engine", [Inline, Pool, Auto])
def test_a_precision_that_there_is_not_is_refused(engine, precision):
    with pytest.raises(BadInput, match=f"precision must be float32 or bf16, not '{precision}'"):
        engine(FEDERATION, TASK, precision=precision)


def test_compiled_networks_train_as_others_do(monkeypatch):
    calls = []

    def compiled(network):  # torch's own takes half a minute, and a C++ compiler
        return lambda x: (calls.append(len(x)), network(x))[1]

    monkeypatch.setattr(torch, "compile", compiled)
    algorithm = method(local=Sgd(batch=5))
    found = [models(algorithm, Inline(FEDERATION, TASK, 1, compile=how), rounds=1) for how in (False, True)]
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
    assert calls


def test_native_kernels_are_the_processors_alone(there: Answers, monkeypatch):
    monkeypatch.setattr("fedrelay.engines.inline.check_native", lambda: None)
    for how in ({"device": NAME}, {"precision": "bf16"}, {"compile": True}):
        with pytest.raises(BadInput, match="native = true computes on the processor, in float32"):
            Inline(FEDERATION, TASK, native=True, **how)


def test_stacks_on_a_device_are_one_process_and_wide(there: Answers):
    assert Stacked(FEDERATION, TASK, device=NAME).rows > Stacked(FEDERATION, TASK).rows
    with pytest.raises(BadInput, match="by one process on pretended"):
        Stacked(FEDERATION, TASK, device=NAME, workers=2)


def test_a_ray_cluster_computes_on_processors():
    with pytest.raises(BadInput, match="ray computes on processors"):
        config.build({**TABLES, "engine": {"name": "ray", "device": "cuda"}})


def test_a_gpu_computes_deterministically_and_leaves_torch_as_it_was(there: Answers):
    seen = []

    class Looks(Work):
        def __call__(self, baton, visit):
            seen.append((torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32))
            return baton, {}, Report(visit.client.id, 1)

    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32
    engine = Inline(FEDERATION, TASK, 1, device=NAME)
    list(engine.run(Looks(), [on_devices_chain(engine)], {}, 1))
    assert seen == [(True, False)]
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.allow_tf32) == before
    assert Computing().plain


# --- the doctor


def test_the_doctor_names_devices_and_says_whether_methods_pass_there(there: Answers, monkeypatch):
    assert any(f"{NAME}:0: {NAME} (made up), 16.0 GB free" == one.found for one in machine())
    (found,) = on_devices.findings(["fedavg", "scaffold"])
    assert (found.name, found.found, found.wrong) == (f"{NAME}:0", "all 2 methods and networks passed", False)

    def broken(**settings: Any):
        raise NotImplementedError("no such operator")

    monkeypatch.setitem(ALGORITHMS, "scaffold", replace(ALGORITHMS["scaffold"], recipe=broken))
    (found,) = on_devices.findings(["fedavg", "scaffold"])
    assert found.wrong
    assert found.found == "1 of 2 failed: scaffold: NotImplementedError: no such operator"


def test_other_bits_and_another_model_on_a_device_are_failures(there: Answers, monkeypatch):
    results = iter([torch.full((3,), float(number)) for number in (1, 0, 1, 0, 1, 1, 2, 0)])
    monkeypatch.setattr(on_devices, "run_of", lambda name, lr=0.1: lambda device: next(results))
    assert on_devices.tried("fedavg", NAME) == "the same run gives other bits the second time"
    assert on_devices.tried("fedavg", NAME) == "the model ends 0.5 of its way from where the processor's does"


@pytest.mark.parametrize("name", on_devices.checks())
def test_a_device_that_does_not_train_at_all_is_a_failure(name: str, monkeypatch):
    run, nothing = on_devices.run_of, lambda training, progress, some: None

    def broken(device: str) -> torch.Tensor:
        with monkeypatch.context() as patched:
            if device != "cpu":
                patched.setattr(Training, "descend", nothing)
            return run(name)("cpu")

    monkeypatch.setattr(on_devices, "run_of", lambda name, **changes: run(name, **changes) if changes else broken)
    assert on_devices.tried(name, NAME) == "the model ends 1 of its way from where the processor's does"


class Rounds(TorchDispatchMode):
    """Adds up otherwise than the processor: what comes of a sum or a product is off by a little."""

    chance = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if any(word in str(func) for word in ("mm", "conv", "sum", "mean", "softmax", "norm")):
            for tensor in tensors_in(found):
                if tensor.is_floating_point():
                    tensor.mul_(1 + 1e-6 * torch.randn(tensor.shape, generator=self.chance))
        return found


@pytest.mark.parametrize("name", ["fedavg", "elmy", "fedelmy", "dense", on_devices.CONVOLUTIONS])
def test_a_device_that_rounds_otherwise_passes(name: str, monkeypatch):
    run, rounds = on_devices.run_of, Rounds()

    def rounding(device: str) -> torch.Tensor:
        rounds.chance.manual_seed(0)
        with rounds if device != "cpu" else nullcontext():
            return run(name)("cpu")

    monkeypatch.setattr(on_devices, "run_of", lambda name, **changes: run(name, **changes) if changes else rounding)
    assert on_devices.tried(name, NAME) == ""


def test_without_a_gpu_the_doctor_says_that_nothing_was_tried(monkeypatch):
    monkeypatch.setattr(devices, "count", lambda kind: 0)
    (found,) = on_devices.findings()
    assert (found.found, found.wrong) == ("not tried: torch sees none here", False)
