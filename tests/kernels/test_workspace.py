"""What of a network is in the vector that travels, and what stays as its owner left it."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from needs import lacking
from torch import nn
from torch.nn import functional as F

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, deployed, train
from fedrelay.algorithms import fedcyclic
from fedrelay.data.federation import Examples, Source
from fedrelay.engines import Inline, Pool
from fedrelay.kernels.native import available
from fedrelay.kernels.views import Views
from fedrelay.kernels.workspace import Workspace
from fedrelay.models import Own
from fedrelay.tasks import Workspaces
from fedrelay.vectors import Layout


def federation(*sizes: int, seed: int = 0) -> Federation:
    """Clients of these sizes, with three features and two classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 3, generator=generator)
    examples = Examples(x, (x[:, 0] > 0).long())
    ends = np.cumsum(sizes)
    rows = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return Federation.of(Source("rows", examples, examples, classes=2), rows)


def network(*middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Linear(4, 2))


def run(module: nn.Module, *sizes: int, local: Sgd | None = None, changes=(), rounds: int = 2):
    """The engine and the last state of a short run in which everybody takes part."""
    split = federation(*sizes)
    engine = Inline(split, Task.of(Own(module), split))
    local = Sgd(batch=4, lr=0.1, epochs=2) if local is None else local
    *_, state = train(fr.method(*changes, local=local, fraction=1.0), engine, rounds=rounds)
    return engine, state


def values(engine: Inline, state) -> dict[str, torch.Tensor]:
    """All tensors of the network with the trained model in it."""
    workspace = Workspaces(engine.task).main
    workspace.load(deployed(state).params, training=False)
    return workspace.network.state_dict()


# --- frozen ---------------------------------------------------------------------------------------------------------


def test_frozen_numbers_neither_train_nor_travel_nor_count_as_traffic():
    module = network(nn.ReLU())
    module[0].requires_grad_(False)
    engine, state = run(module, 8, 8)
    assert engine.task.layout.size == engine.task.layout.trainable == 4 * 2 + 2
    found = values(engine, state)
    assert torch.equal(found["0.weight"], module[0].weight)
    assert not torch.equal(found["2.weight"], module[2].weight)
    assert state.log.bytes == {"server_to_client": 2 * 4 * 10, "client_to_server": 2 * 4 * 10, "client_to_client": 0}


def test_a_frozen_part_gives_what_training_on_its_features_gives():
    module = network(nn.ReLU())
    module[0].requires_grad_(False)
    engine, state = run(module, 8, 8)
    split = engine.federation
    with torch.no_grad():
        features = module[1](module[0](split.source.train.x))
    source = Source("features", Examples(features, split.source.train.y), split.source.test, classes=2)
    after = Inline(
        looked := Federation(source, split.order, split.starts), Task.of(Own(nn.Sequential(module[2])), looked)
    )
    *_, alone = train(fr.method(local=Sgd(batch=4, lr=0.1, epochs=2), fraction=1.0), after, rounds=2)
    torch.testing.assert_close(deployed(state).params, deployed(alone).params)


def test_frozen_numbers_may_be_of_any_kind():
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([2.0, 4.0, 8.0], dtype=torch.float16), requires_grad=False)
            self.last = nn.Linear(3, 2)

        def forward(self, x):
            return self.last(x * self.scale.float())

    engine, state = run(Halved(), 8, 8)
    assert values(engine, state)["scale"].dtype == torch.float16
    module = Halved()
    module.scale.requires_grad_(True)
    with pytest.raises(BadInput, match=r"scale of Own is torch\.float16"):
        Own(module)


# --- parts in .eval() -----------------------------------------------------------------------------------------------


def test_dropout_in_eval_drops_nothing_in_training():
    for dropout in (nn.Dropout(0.5), nn.AlphaDropout(0.5)):  # gradients are written out for the first alone
        resting, nothing = run(network(dropout.eval()), 8, 8), run(network(nn.Identity()), 8, 8)
        dropping = run(network(type(dropout)(0.5)), 8, 8)
        assert torch.equal(deployed(resting[1]).params, deployed(nothing[1]).params)
        assert not torch.equal(deployed(resting[1]).params, deployed(dropping[1]).params)


def test_batch_norm_in_eval_keeps_its_statistics_at_home_and_as_they_are():
    norm = nn.BatchNorm1d(4)
    norm.running_mean.copy_(torch.arange(4.0))
    engine, state = run(network(norm.eval()), 8, 8)
    assert engine.task.layout.size == engine.task.layout.trainable == 3 * 4 + 4 + 2 * 4 + 4 * 2 + 2
    found = values(engine, state)
    assert torch.equal(found["1.running_mean"], torch.arange(4.0))
    assert not torch.equal(found["1.weight"], norm.weight)  # its scale trains: it is not frozen


def test_a_network_that_says_itself_what_never_trains_is_heard():
    class Says(nn.Sequential):
        def train(self, mode: bool = True):
            super().train(mode)
            self[1].eval()
            return self

    engine, _ = run(Says(*network(nn.BatchNorm1d(4))), 8, 8)
    assert engine.task.layout.size == engine.task.layout.trainable


# --- buffers --------------------------------------------------------------------------------------------------------


def test_whole_numbers_travel_exactly_along_chains_and_rounds():
    """With momentum None, BatchNorm's statistics are the plain means over all batches so far, which it counts."""
    module, still = nn.Sequential(nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2)), Sgd(batch=4, lr=0.0)
    engine, state = run(module, 8, 4, 8, local=still, changes=(fedcyclic(),), rounds=2)
    found = values(engine, state)
    assert int(found["0.num_batches_tracked"]) == 2 * (2 + 1 + 2)
    torch.testing.assert_close(found["0.running_mean"], engine.federation.source.train.x.mean(0), atol=1e-6, rtol=0)


def test_counts_are_averaged_by_a_mean_and_rounded_where_they_are_used():
    """2, 1 and 2 batches are 1.8 in the mean by examples; after 2 + 2, 2 + 1 and 2 + 2 it is 3.8."""
    module, still = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), Sgd(batch=4, lr=0.0)
    engine, state = run(module, 8, 4, 8, local=still, rounds=2)
    assert float(deployed(state).params[-1]) * 2**24 == pytest.approx(3.8)
    assert int(values(engine, state)["0.num_batches_tracked"]) == 4
    layout = engine.task.layout
    assert layout.pieces(deployed(state).params)["0.num_batches_tracked"].dtype == torch.int64


def test_a_count_is_next_to_nothing_in_the_length_of_a_model():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    module[0].num_batches_tracked.fill_(1 << 24)
    task = Task(Own(module), (3,), 2)
    params = task.init(0)
    assert float(params[-1]) == 1.0
    assert int(task.layout.pieces(params)["0.num_batches_tracked"]) == 1 << 24


class Counter(nn.Module):
    """Counts examples and sums inputs in buffers that it puts anew, not in place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        if self.training:
            self.seen = self.seen + len(x)
            self.total = self.total + x.sum(0)
            self.calls += 1
        return self.last(x)


def test_buffers_that_a_module_replaces_travel_too():
    engine, state = run(Counter(), 8, 4, 8, local=Sgd(batch=4, lr=0.1), changes=(fedcyclic(),), rounds=1)
    found = values(engine, state)
    assert int(found["seen"]) == 20
    torch.testing.assert_close(found["total"], engine.federation.source.train.x.sum(0))


def test_what_does_not_travel_is_found_as_it_was_by_every_visit():
    task = Task(Own(Counter()), (3,), 2)
    assert "calls" not in {entry.name for entry in task.layout.entries}
    workspace = Workspaces(task).main
    for _ in range(2):
        workspace.load(task.init(0), training=True)
        assert float(workspace.network.calls) == 0
        workspace.network(torch.zeros(2, 3))
        assert float(workspace.network.calls) == 1


def test_the_steps_uphill_of_sam_are_not_counted():
    local = Sgd(batch=4, lr=0.1, terms=(fr.visits.Sharpness(0.05),))
    engine, state = run(Counter(), 8, 4, local=local, changes=(fedcyclic(),), rounds=1)
    assert int(values(engine, state)["seen"]) == 12


def test_numbers_that_a_vector_cannot_hold_are_refused():
    module = Counter()
    module.seen.fill_((1 << 24) + 1)
    with pytest.raises(BadInput, match=r"seen of Own has whole numbers beyond 16777216.*persistent=False"):
        Own(module)


def test_workers_find_the_same_frozen_numbers_and_counts():
    module = network(nn.BatchNorm1d(4), nn.Dropout(0.5).eval())
    module[0].requires_grad_(False)
    engine, state = run(module, 8, 8, 9, changes=(fedcyclic(),))
    with Pool(engine.federation, engine.task, workers=2) as pool:
        algorithm = fr.method(fedcyclic(), local=Sgd(batch=4, lr=0.1, epochs=2), fraction=1.0)
        *_, there = train(algorithm, pool, rounds=2)
    assert torch.equal(deployed(state).params, deployed(there).params)


# --- BatchNorm and a last batch of one --------------------------------------------------------------------------------


def test_a_last_batch_of_one_goes_with_the_batch_before_it_under_batch_norm():
    """Of 5, 9, 8 and 13 examples in batches of 4, three leave one over: batches of 5; 4, 5; 4, 4; 4, 4, 5."""
    engine, state = run(network(nn.BatchNorm1d(4)), 5, 9, 8, 13, changes=(fedcyclic(),), local=Sgd(batch=4), rounds=1)
    assert not state.log.drops
    assert state.log.examples == 5 + 9 + 8 + 13
    assert int(values(engine, state)["1.num_batches_tracked"]) == 1 + 2 + 2 + 3


def test_steps_are_counted_right_when_batches_are_folded():
    engine, state = run(network(nn.BatchNorm1d(4)), 9, local=Sgd(batch=4, steps=5), rounds=1)
    assert int(values(engine, state)["1.num_batches_tracked"]) == 5
    assert state.log.examples == 2 * 9 + 4  # two whole passes of two batches, and one batch more


def test_nothing_is_folded_where_batches_are_not_normalised():
    plain = [network(nn.ReLU()), network(nn.LayerNorm(4)), network(nn.BatchNorm1d(4).eval())]
    for module in plain:
        assert not Task(Own(module), (3,), 2).parts.by_batch
    assert Task(Own(network(nn.BatchNorm1d(4))), (3,), 2).parts.by_batch
    assert Task(Own(network(nn.BatchNorm1d(4, track_running_stats=False).eval())), (3,), 2).parts.by_batch


def test_layout_of_a_network_without_such_parts_is_parameters_then_float_buffers():
    names = [entry.name for entry in Layout.of(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))).entries]
    buffers = ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias", *buffers]


class Viewing(nn.Module):
    """Written as most networks are."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.head = nn.Linear(channels * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.two(self.one(x))), 2)
        return self.head(x.view(x.size(0), -1))


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("channels", [6, 64])
def test_networks_that_say_view_train_as_those_that_say_reshape(channels, native):
    if native and not available():
        lacking("the compiled part is not there")
    torch.manual_seed(0)
    alone = Viewing(channels).double()
    module = deepcopy(alone).float()
    workspace = Workspace(module, Layout.of(module), F.cross_entropy, written=True, native=native)
    x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))
    loss = F.cross_entropy(alone(x.double()), y)
    loss.backward()
    workspace.mode(training=True)
    assert float(workspace.differentiate(x, y)) == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, parameter in module.named_parameters():
        wanted = alone.get_parameter(name).grad
        assert float((parameter.grad - wanted).norm() / wanted.norm()) < 1e-4
    with torch.no_grad():
        torch.testing.assert_close(workspace.answer(x).double(), alone(x.double()), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="invalid for input of size"), Views():
        x.transpose(2, 3).view(5, 7)
