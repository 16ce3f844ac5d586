"""DENSE: what makes an image a good one, the server's epochs, and what they cost."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, cli, train
from fedrelay.algorithms import dense, synthesis
from fedrelay.algorithms.dense import MeanLogits, Student
from fedrelay.algorithms.synthesis import Generator, Models, boundary, divergence, moved, statistics_apart
from fedrelay.data import Dirichlet, Examples, Iid, Normalise, Source, diabetes, digits
from fedrelay.engines import Inline
from fedrelay.models import Mlp, MlpNorm
from fedrelay.runs import record
from fedrelay.tasks import Workspaces, evaluate
from fedrelay.tasks.images import scaling

# Values in this file that are not obvious were computed outside this project, from the formulas.
TAUGHT = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
OWN = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
QUICK = {"steps": 2, "batch": 8, "threads": 1}


# --- what makes an image a good one


def test_losses_of_the_generator_and_the_student_are_those_of_the_formulas():
    close = {"atol": 1e-6, "rtol": 0}
    torch.testing.assert_close(
        torch.nn.functional.cross_entropy(TAUGHT, torch.tensor([0, 1])).item(), 0.2200948, **close
    )
    torch.testing.assert_close(divergence(TAUGHT, OWN), torch.tensor([0.8287249, 0.0826077]), **close)
    torch.testing.assert_close(boundary(TAUGHT, OWN).item(), -0.4143625, **close)
    torch.testing.assert_close(divergence(TAUGHT, OWN).mean().item(), 0.4556663, **close)
    torch.testing.assert_close(divergence(TAUGHT, OWN, 20.0).mean().item(), 0.6244017, **close)
    torch.testing.assert_close(divergence(TAUGHT.double(), OWN.double(), 1e5).mean().item(), 0.625, atol=1e-5, rtol=0)


def test_statistics_of_a_batch_are_compared_with_running_ones():
    """Running means (0, 1) and variances (1, 4); the batch has means (.3, 1.4) and variances (2, 4)."""
    away = torch.tensor([2.0, 4.0]).sqrt()
    x = torch.tensor([0.3, 1.4]) + torch.stack((away, -away))
    running = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0])
    torch.testing.assert_close(statistics_apart(x, *running).item(), 1.5)
    images = x[:, :, None, None].expand(-1, -1, 3, 2)
    torch.testing.assert_close(statistics_apart(images, *running).item(), 1.5)


def test_statistics_are_summed_over_layers_and_averaged_over_models():
    federation = Federation.split(digits(), Iid(), 2)
    task = Task.of(MlpNorm((4, 3)), federation)
    models = [task.init(1), task.init(2)]
    for model in models:
        task.layout.pieces(model)["body.2.running_mean"].fill_(7.0)
    x = federation.client(0).take(torch.arange(32), None)[0]
    expected = torch.zeros(())
    for model in models:
        space = Workspaces(task).main
        space.load(model, training=False)
        body = space.network.body
        first = body[1](x.flatten(1))
        second = body[4](torch.relu(body[2](first)))
        for seen, norm in ((first, body[2]), (second, body[5])):
            mean, variance = seen.mean(0), seen.var(0, unbiased=False)
            expected = expected + (variance - norm.running_var).norm() + (mean - norm.running_mean).norm()
    teacher = Models(task, models, MeanLogits(10))
    torch.testing.assert_close(teacher.with_statistics(x)[1], expected.detach() / 2)
    torch.testing.assert_close(teacher.with_statistics(x)[0], teacher(x))


def test_the_generator_has_as_many_numbers_as_the_authors_and_takes_odd_sides():
    numbers = sum(parameter.numel() for parameter in Generator((3, 32, 32)).parameters())
    assert numbers == 2_328_899
    for shape in ((1, 7, 9), (3, 2, 3), (1, 28, 28)):
        images = Generator(shape)(torch.zeros(2, 256))
        assert tuple(images.shape) == (2, *shape)
        assert bool(((images > 0) & (images < 1)).all())


def test_models_together_say_the_mean_of_their_logits_each_with_its_own_statistics():
    federation = Federation.split(digits(), Iid(), 2)
    task = Task.of(MlpNorm((4,)), federation)
    one, other = task.init(1), task.init(2)
    task.layout.pieces(other)["body.2.running_var"].fill_(3.0)
    x, workspaces = federation.client(0).take(torch.arange(8), None)[0], Workspaces(task)
    alone = []
    for model in (one, other):
        workspaces.main.load(model, training=False)
        alone.append(workspaces.main.network(x).detach())
    torch.testing.assert_close(Models(task, [one, other], MeanLogits(10))(x), (alone[0] + alone[1]) / 2)


# --- images


def test_small_images_are_only_flipped_and_large_ones_shifted_within_black():
    images = torch.rand(64, 2, 7, 5)
    for image, after in zip(images, moved(images), strict=True):
        assert torch.equal(after, image) or torch.equal(after, image.flip(-1))
    white = moved(torch.ones(64, 1, 32, 32))
    black = {(int((one == 0).all(1).sum()), int((one == 0).all(0).sum())) for one in white[:, 0]}
    assert max(rows for rows, _ in black) == max(columns for _, columns in black) == 4
    assert len(black) > 10


def test_made_images_are_scaled_as_the_data_are():
    source = digits()
    grey = Normalise((0.25,), (0.5,))
    train_, test = (part.with_transform(grey) for part in (source.train, source.test))
    task = Task.of(Mlp((4,)), Federation.split(Source("grey", train_, test, 10), Iid(), 2))
    images = torch.rand(3, 1, 8, 8)
    torch.testing.assert_close(scaling(task, "somebody makes")(images), (images - 0.25) / 0.5)
    plain = Task.of(Mlp((4,)), Federation.split(source, Iid(), 2))
    assert torch.equal(scaling(plain, "somebody makes")(images), images)


# --- the rounds


def engine_of(clients: int = 3, model=Mlp((8,)), alpha: float = 0.5) -> Inline:
    federation = Federation.split(digits(), Dirichlet(alpha=alpha), clients, 1)
    return Inline(federation, Task.of(model, federation), 1)


def test_only_the_first_round_asks_clients_and_it_costs_a_model_each_way():
    model = 4 * ((64 * 8 + 8) + (8 * 10 + 10))
    first, *others = train(fr.method(dense(**QUICK)), engine_of(), rounds=3)
    assert first.log.bytes == {"server_to_client": 3 * model, "client_to_server": 3 * model, "client_to_client": 0}
    for state in others:
        assert sum(state.log.bytes.values()) == sum(state.log.messages.values()) == 0
        assert (state.log.clients, state.log.chains, state.log.examples, state.participants) == (0, 0, 0, ())
    assert [len(state.server["images"]) for state in (first, *others)] == [8, 16, 24]
    assert others[-1].server["images"].dtype == torch.uint8
    assert all(torch.equal(*pair) for pair in zip(first.server["models"], others[-1].server["models"], strict=True))


def test_the_student_learns_digits_without_having_seen_one():
    federation = Federation.split(digits(), Iid(), 2)
    engine = Inline(federation, Task.of(Mlp((32,)), federation), 1)
    local = Sgd(epochs=5, lr=0.1, batch=16, momentum=0.9)
    algorithm = fr.method(dense(steps=10, batch=64, lr=0.2, threads=1), local=local)
    workspaces = Workspaces(engine.task)
    states = list(train(algorithm, engine, rounds=10))
    first, last = (evaluate(fr.deployed(s, algorithm), digits().test, workspaces) for s in (states[0], states[-1]))
    assert first["accuracy"] < 0.2 < 0.4 < last["accuracy"]


def test_as_published_statistics_do_not_count():
    assert dense().merge.wanted == synthesis.Wanted(1.0, 0.5)
    assert dense(variant="published").merge.wanted == synthesis.Wanted(0.0, 1.0)
    assert dense(variant="published", bn=2.0).merge.wanted == synthesis.Wanted(2.0, 1.0)
    ends = [
        list(train(fr.method(dense(bn=bn, **QUICK)), engine_of(model=MlpNorm((8,))), rounds=2))[-1] for bn in (0, 1)
    ]
    assert not torch.equal(*(state.server["images"] for state in ends))


@pytest.mark.parametrize("how", ["an interrupt", "a kill"])
def test_a_run_that_stops_while_the_generator_trains_goes_on_with_the_same_bits(tmp_path, monkeypatch, how):
    algorithm = fr.method(dense(steps=4, batch=8, threads=1))

    def recorder(folder, **settings):
        return record.Recorder(folder, algorithm, engine_of(), digits().test, 5, checkpoint_every=2, **settings)

    list(recorder(tmp_path / "whole").run())
    left, before, calls = tmp_path / "left", synthesis.moved, []

    def stopping(images):
        calls.append(1)
        if len(calls) == 3 * 4 + 2:  # the second step of the generator in round 4
            shutil.copytree(left, tmp_path / "a kill", ignore=shutil.ignore_patterns("*.lock"))
            raise KeyboardInterrupt
        return before(images)

    with monkeypatch.context() as patch:
        patch.setattr(synthesis, "moved", stopping)
        with pytest.raises(KeyboardInterrupt):
            list(recorder(left).run())
    folder = left if how == "an interrupt" else tmp_path / how
    assert recorder(folder).done() == (3 if how == "an interrupt" else 2)
    list(recorder(folder, resume=True).run())
    prints = [json.loads((each / "summary.json").read_text())["params_sha256"] for each in (folder, tmp_path / "whole")]
    assert prints[0] == prints[1]


def test_a_run_from_a_file_and_its_report_know_rounds_without_clients(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text("""
rounds = 3
[data]
name = "digits"
clients = 3
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "dense"
steps = 2
batch = 8
[latency]
""")
    assert cli.main(["run", str(file), "--out", str(tmp_path / "run"), "--json"]) == 0
    assert cli.main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["clients"] for line in lines] == [3, 0, 0]
    assert [line["simulated_seconds"] > 0 for line in lines] == [True, False, False]


# --- what is refused


def test_data_without_images_or_classes_and_settings_without_a_meaning_are_refused():
    flat = Source("flat", *(Examples(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])),) * 2, 2)
    for source, words in ((flat, r"makes images .* the shape \(3,\)"), (diabetes(), "which class an image is of")):
        federation = Federation.split(source, Iid(), 2)
        engine = Inline(federation, Task.of(Mlp((4,)), federation))
        with pytest.raises(BadInput, match=words):
            list(train(fr.method(dense()), engine, rounds=1))
    for settings in ({"bn": -1}, {"steps": 0}, {"batch": 1}, {"lr": 0}, {"temperature": 0}, {"threads": 0}):
        with pytest.raises(BadInput, match=f"{next(iter(settings))} must be"):
            dense(**settings)
    with pytest.raises(BadInput, match="variant must be"):
        dense(variant="other")


class Strange:
    """A transform that takes only bytes."""

    def __call__(self, x, rng):
        if x.dtype != torch.uint8:
            raise TypeError("only bytes")
        return x.float()


def test_a_transform_that_the_server_cannot_use_is_refused():
    images = Examples(torch.zeros(4, 8, 8, 1, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), Strange())
    federation = Federation.split(Source("strange", images, images, 2), Iid(), 2)
    with pytest.raises(BadInput, match="Strange does not take images between 0 and 1: only bytes"):
        Student().fitted(Task.of(Mlp((4,)), federation), 0)
