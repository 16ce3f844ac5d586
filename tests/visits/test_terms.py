"""Terms: they add up, cost nothing where they do nothing, and end with what they need to know."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedrelay import BadInput, Federation, Sgd, Task
from fedrelay.data import Iid, digits
from fedrelay.engines import Inline, Stacked
from fedrelay.kernels.workspace import Forward, StackedWorkspace, Workspace
from fedrelay.models import Mlp
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Chain, Visit
from fedrelay.visits import Adam, Discrepancy, Distillation, Effect, Force, Proximal, Sharpness, Term
from fedrelay.visits.loss_terms import discrepancy
from fedrelay.visits.schedules import Step
from fedrelay.visits.terms import joined

LENGTH = 5


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.split(digits(), Iid(), 10)


@pytest.fixture(scope="module")
def task(federation) -> Task:
    return Task.of(Mlp(hidden=(12,)), federation)


def visit_of(federation, task, *, client=3, round=1, memory=None) -> Visit:
    memory = {} if memory is None else memory
    return Visit(federation.client(client), task, memory, {}, round, 0, seed=7, workspaces=Workspaces(task))


# --- forces

numbers = st.integers(-8, 8).map(lambda number: number / 4)
vectors = st.lists(numbers, min_size=LENGTH, max_size=LENGTH).map(torch.tensor)
springs = st.builds(Force, st.integers(0, 8).map(lambda number: number / 4), vectors, st.none() | vectors)
forces = st.just(Force()) | st.builds(Force, shift=vectors) | springs


def felt(force: Force, weights: torch.Tensor, *, exact: bool = False) -> torch.Tensor:
    """What a gradient of zero becomes."""
    gradient = torch.zeros_like(weights)
    force.act(gradient, weights, exact=exact)
    return gradient


@given(springs, vectors, st.booleans())
def test_a_force_is_a_spring_and_a_shift(force, weights, exact):
    shift = 0 if force.shift is None else force.shift
    expected = force.strength * (weights - force.anchor) + shift
    torch.testing.assert_close(felt(force, weights, exact=exact), expected, atol=1e-5, rtol=1e-5)
    gradient = torch.ones(LENGTH)
    force.act(gradient, weights)
    torch.testing.assert_close(gradient, 1 + expected, atol=1e-5, rtol=1e-5)


@given(forces, forces, vectors)
def test_two_forces_are_one_that_does_what_both_do(one, other, weights):
    expected = felt(one, weights) + felt(other, weights)
    torch.testing.assert_close(felt(one + other, weights), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(felt(other + one, weights), expected, atol=1e-4, rtol=1e-4)


@given(forces, forces, forces, vectors)
def test_it_does_not_matter_which_forces_are_added_first(one, two, three, weights):
    torch.testing.assert_close(
        felt((one + two) + three, weights), felt(one + (two + three), weights), atol=1e-4, rtol=1e-4
    )


@given(forces, vectors)
def test_no_force_at_all_adds_nothing(force, weights):
    for both in (force + Force(), Force() + force):
        assert torch.equal(felt(both, weights), felt(force, weights))


def test_two_springs_are_one_between_their_anchors():
    """Three times as strong at 8 as at 0: a spring of strength 4 at 6."""
    both = Force(1.0, torch.tensor([0.0])) + Force(3.0, torch.tensor([8.0]))
    assert (both.strength, both.anchor.tolist(), both.shift) == (4.0, [6.0], None)


def test_a_spring_without_an_anchor_cannot_be_added():
    with pytest.raises(ValueError, match="a force with a strength needs an anchor"):
        Force(1.0) + Force(1.0, torch.zeros(1))


@pytest.mark.parametrize(
    ("force", "acts"),
    [
        (Force(), False),
        (Force(0.0, torch.ones(2)), False),
        (Force(0.5, torch.ones(2)), True),
        (Force(shift=torch.ones(2)), True),
    ],
)
def test_a_force_knows_whether_it_does_anything(force, acts):
    assert force.acts is acts
    assert bool(felt(force, torch.zeros(2)).any()) is acts


def test_an_exact_spring_is_no_force_at_its_anchor():
    """Otherwise rounding is left of it, which an optimiser that scales number by number takes for a gradient."""
    anchor = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    assert not felt(Force(0.7, anchor), anchor, exact=True).any()


@given(st.lists(vectors, min_size=2, max_size=4), st.lists(vectors, min_size=4, max_size=4))
def test_forces_act_on_rows_as_they_do_alone(anchors, shifts):
    alone = [Force(0.5, anchor, shift) for anchor, shift in zip(anchors, shifts, strict=False)]
    weights = torch.arange(float(len(alone) * LENGTH)).view(-1, LENGTH)
    together = Force.rows(alone)
    for count in range(1, len(alone) + 1):
        found = felt(together.first(count), weights[:count])
        assert torch.equal(
            found, torch.stack([felt(one, row) for one, row in zip(alone, weights, strict=False)])[:count]
        )


@pytest.mark.parametrize("other", [Force(), Force(2.0, torch.ones(2)), Force(1.0, torch.ones(2), torch.ones(2))])
def test_forces_of_different_kinds_do_not_go_into_rows(other):
    with pytest.raises(ValueError, match="different strength or kind"):
        Force.rows([Force(1.0, torch.ones(2)), other])


# --- effects


def nothing(batch):
    return torch.zeros(())


def more(batch):
    return torch.ones(())


def plainly(x):
    return Forward(None, x)


def test_effects_add_up():
    spring, shift = Force(2.0, torch.ones(2)), Force(shift=torch.full((2,), 3.0))
    one, other = Effect(spring, (nothing,), uphill=0.1), Effect(shift, (more,), run=plainly)
    both = one + other
    assert felt(both.force, torch.zeros(2)).tolist() == [1.0, 1.0]  # 2 (0 - 1) + 3
    assert (both.losses, both.run, both.uphill) == ((nothing, more), plainly, 0.1)
    assert (other + one).losses == (more, nothing)
    assert ((other + one).run, (other + one).uphill) == (plainly, 0.1)


@pytest.mark.parametrize(
    ("effect", "what"),
    [(Effect(run=plainly), "how the model is run"), (Effect(uphill=0.1), "where the gradient is taken")],
)
def test_effects_that_decide_the_same_are_refused_even_if_their_terms_did_not_say_so(effect, what):
    with pytest.raises(BadInput, match=f"two terms decide {what}: only one of them can"):
        effect + Effect(Force(1.0, torch.ones(2))) + effect


@pytest.mark.parametrize("effect", [Effect(), Effect(Force(1.0, torch.ones(2)), (nothing,), plainly, 0.5)])
def test_an_effect_of_nothing_adds_nothing(effect):
    for both in (effect + Effect(), Effect() + effect):
        assert (both.losses, both.run, both.uphill) == (effect.losses, effect.run, effect.uphill)
        assert (both.force is None) is (effect.force is None)


def test_the_effects_of_rows_differ_in_their_forces_alone():
    assert Effect.rows([Effect(uphill=0.1), Effect(uphill=0.1)]) == Effect(uphill=0.1)
    shifts = [Effect(Force(shift=torch.full((2,), value)), uphill=0.1) for value in (1.0, 2.0)]
    both = Effect.rows(shifts)
    assert both.force.shift.tolist() == [[1, 1], [2, 2]]
    assert both.uphill == 0.1
    for other in (Effect(), Effect(uphill=0.2), Effect(losses=(nothing,)), Effect(run=plainly)):
        with pytest.raises(ValueError, match=r"different (kinds|strength or kind)"):
            Effect.rows([shifts[0], other])


@dataclass(frozen=True)
class Sometimes(Term):
    """Shifts the gradient at client 3 only."""

    def begin(self, received, visit, /):
        return Effect(Force(shift=torch.ones_like(visit.weights(received)))) if visit.client.id == 3 else Effect()


def test_a_force_at_one_client_does_not_act_on_the_rows_of_others(federation, task):
    chains = [Chain(Baton(task.init(0)), (client,)) for client in (2, 3, 4)]
    expected, found = (
        [outcome.baton.params for outcome in engine.run(Sgd(batch=16, terms=(Sometimes(),)), chains, {}, 1)]
        for engine in (Inline(federation, task), Stacked(federation, task, rows=3))
    )
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


# --- terms together


@dataclass(frozen=True)
class Keeping(Term):
    """Counts its visits under a name of its own."""

    name: str
    start: int = 0

    @property
    def keeps(self):
        return (self.name,)

    def end(self, received, trained, visit, /, *, steps, lr):
        count = visit.memory.get(self.name, self.start) + 1
        return {**visit.memory, self.name: count}, {self.name: -count}


@dataclass(frozen=True)
class Idle(Term):
    """Does nothing at all."""


def test_every_term_keeps_its_own_part_of_the_memory(federation, task):
    local = Sgd(terms=(Keeping("one"), Idle(), Keeping("other", start=10)))
    assert local.keeps == ("one", "other")
    before = {"another": 5}
    baton, memory, report = local(Baton(task.init(5)), visit_of(federation, task, memory=before))
    assert memory == {"another": 5, "one": 1, "other": 11}
    assert report.uplink == {"one": -1, "other": -11}
    assert before == {"another": 5}
    _, memory, _ = local(baton, visit_of(federation, task, memory=memory))
    assert memory == {"another": 5, "one": 2, "other": 12}


def test_a_memory_that_nobody_changes_is_the_same_one(federation, task):
    """Then no engine has to keep it anew."""
    before = {"another": 5}
    for terms in ((), (Idle(),), (Idle(), Proximal())):
        _, memory, report = Sgd(terms=terms)(Baton(task.init(5)), visit_of(federation, task, memory=before))
        assert memory is before
        assert report.uplink == {}


def test_a_term_that_is_there_twice_counts_once():
    assert Sgd(terms=(Proximal(0.1), Sharpness(), Proximal(0.1))).terms == (Proximal(0.1), Sharpness())
    assert Sgd(terms=(Proximal(0.1), Proximal(0.2))).terms == (Proximal(0.1), Proximal(0.2))


def test_two_terms_that_keep_the_same_name_are_refused():
    with pytest.raises(BadInput, match="two terms would both keep one in the clients' memories"):
        joined(Keeping("one"), Keeping("one", start=3))


@dataclass(frozen=True)
class Sending(Term):
    """Sends something under a name that is everybody's."""

    value: int

    def end(self, received, trained, visit, /, *, steps, lr):
        return visit.memory, {"answer": self.value}


def test_two_terms_that_send_the_same_name_are_refused(federation, task):
    """Otherwise the server would get one of the two, and nobody would know which."""
    with pytest.raises(BadInput, match="two terms would both send answer to the server"):
        Sgd(steps=1, terms=(Sending(1), Sending(2)))(Baton(task.init(5)), visit_of(federation, task))


def test_two_terms_that_decide_the_same_are_refused():
    message = r"two terms decide the radius of SAM, Sharpness\(rho=0.1\) and Sharpness\(rho=0.2\): only one of them can"
    with pytest.raises(BadInput, match=message):
        Sgd(terms=(Sharpness(0.1), Sharpness(0.2)))


def test_two_losses_add_up_to_what_torch_makes_of_their_sum(federation, task):
    begin, client = task.init(5), federation.client(3)
    terms = (Distillation(0.7, temperature=3.0), Discrepancy(0.5))
    found, _, _ = Sgd(steps=4, batch=0, lr=0.2, terms=terms)(Baton(begin), visit_of(federation, task))
    network = task.model(task.shape, task.classes)
    with torch.no_grad():
        for name, value in task.layout.pieces(begin).items():
            network.get_parameter(name).copy_(value)
    received, optimiser = deepcopy(network), torch.optim.SGD(network.parameters(), lr=0.2)
    x, y = client.take(torch.arange(client.size), None)
    for _ in range(4):
        optimiser.zero_grad()
        features, before = network.body(x), received.body(x).detach()
        logits, taught = network.head(features), functional.softmax(received.head(before).detach() / 3, dim=1)
        divergence = (taught * (taught.log() - functional.log_softmax(logits / 3, dim=1))).sum(1).mean()
        loss = functional.cross_entropy(logits, y) + 0.7 * 9 * divergence + 0.5 * discrepancy(features, before)
        loss.backward()
        optimiser.step()
    for name, value in task.layout.pieces(found.params).items():
        torch.testing.assert_close(value, network.get_parameter(name).detach(), atol=2e-6, rtol=1e-4)


@dataclass(frozen=True)
class Doubled(Term):
    """The model is run so that all its logits are doubled."""

    def begin(self, received, visit, /):
        network = visit.workspaces.main.network

        def run(x):
            features = network.body(x)
            return Forward(features, 2 * network.head(features))

        return Effect(run=run)


@dataclass(frozen=True)
class Lengths(Term):
    """Adds the mean square of the logits to the loss."""

    def begin(self, received, visit, /):
        return Effect(losses=(lambda batch: batch.output.square().mean(),))


def test_losses_see_the_model_as_it_is_run(federation, task):
    begin, client = task.init(5), federation.client(3)
    local = Sgd(steps=1, batch=0, lr=0.1, terms=(Doubled(), Lengths()))
    found, _, report = local(Baton(begin), visit_of(federation, task))
    workspace = Workspaces(task).main
    workspace.load(begin, training=True)
    x, y = client.take(torch.arange(client.size), None)
    logits = 2 * workspace.network(x)
    loss = nn.functional.cross_entropy(logits, y) + logits.square().mean()
    loss.backward()
    torch.testing.assert_close(found.params, begin - 0.1 * workspace.gradient, atol=1e-6, rtol=1e-5)
    assert report.metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)


# --- a term that does nothing


@pytest.mark.parametrize(
    "terms",
    [
        (Idle(),),
        (Keeping("one"),),
        (Proximal(0.0),),
        (Sharpness(0.0),),
        (Distillation(0.0), Discrepancy(0.0)),
        (Idle(), Proximal(0.0), Sharpness(0.0), Keeping("one")),
    ],
)
def test_a_term_that_does_nothing_keeps_the_plain_step_and_its_bits(federation, task, monkeypatch, terms):
    local, start = Sgd(epochs=2, batch=8, lr=0.1), Baton(task.init(5))
    expected, _, _ = local(start, visit_of(federation, task))
    steps = []
    taken = Workspace.step
    monkeypatch.setattr(Workspace, "step", lambda self, x, y, lr: steps.append(lr) or taken(self, x, y, lr))
    monkeypatch.setattr(Workspace, "differentiate", lambda *_: pytest.fail("it was not a plain step"))
    found, _, _ = replace(local, terms=terms)(start, visit_of(federation, task))
    assert torch.equal(found.params, expected.params)
    assert steps == [0.1] * 36  # 144 examples in batches of 8, twice


@pytest.mark.parametrize("terms", [(Idle(),), (Keeping("one"),), (Proximal(0.0), Sharpness(0.0))])
def test_a_stack_keeps_its_plain_step_too(federation, task, monkeypatch, terms):
    local, batons = Sgd(batch=8, lr=0.1), [Baton(task.init(seed)) for seed in (5, 6)]

    def visits():
        workspaces = Workspaces(task)
        return [replace(visit_of(federation, task, client=client), workspaces=workspaces) for client in (3, 4)]

    expected = local.together(batons, visits())
    monkeypatch.setattr(StackedWorkspace, "differentiate", lambda *_: pytest.fail("it was not a plain step"))
    found = replace(local, terms=terms).together(batons, visits())
    for (one, _, _), (other, _, _) in zip(expected, found, strict=True):
        assert torch.equal(one.params, other.params)


@pytest.mark.parametrize(
    "local",
    [
        Sgd(terms=(Proximal(0.1),)),
        Sgd(terms=(Sharpness(0.1),)),
        Sgd(terms=(Distillation(),)),
        Sgd(clip=1.0),
        Sgd(momentum=0.5),
        Sgd(weight_decay=0.1),
        Adam(),
    ],
)
def test_what_does_something_is_no_plain_step(federation, task, monkeypatch, local):
    monkeypatch.setattr(Workspace, "step", lambda *_: pytest.fail("a plain step leaves something out"))
    local(Baton(task.init(5)), visit_of(federation, task))


# --- the end of a visit


@dataclass(frozen=True)
class Telling(Term):
    """Sends what it is told at the end."""

    def end(self, received, trained, visit, /, *, steps, lr):
        return visit.memory, {"received": received, "trained": trained.clone(), "steps": steps, "lr": lr}


@dataclass(frozen=True)
class Cutting(Term):
    """Sets the first number of the trained model to the received one plus one."""

    def finish(self, received, trained, visit, /):
        trained[0] = received[0] + 1


def test_everybody_ends_with_the_finished_model(federation, task):
    start = task.init(5)
    local = Sgd(batch=16, lr=0.2, terms=(Telling(), Cutting()))
    baton, _, report = local(Baton(start), visit_of(federation, task))
    plain, _, _ = Sgd(batch=16, lr=0.2)(Baton(start), visit_of(federation, task))
    assert baton.params[0] == start[0] + 1
    assert torch.equal(baton.params[1:], plain.params[1:])
    assert torch.equal(report.uplink["trained"], baton.params)
    assert report.uplink["received"] is start


@pytest.mark.parametrize(
    ("local", "steps", "lr"),
    [
        (Sgd(epochs=2, batch=40, lr=0.1), 8, 0.1),  # 144 examples: four batches an epoch
        (Sgd(steps=5, batch=40, lr=0.1), 5, 0.1),
        (Sgd(steps=3, batch=0, lr=0.1), 3, 0.1),
        (Sgd(steps=3, lr=0.4, schedule=Step(every=1, factor=0.5)), 3, 0.1),  # in round 3
        (Sgd(steps=3, lr=0.1, momentum=0.5), 1 + 1.5 + 1.75, 0.1),  # a gradient is felt by all later steps
        (Adam(steps=3, lr=0.1), 3, 0.1),
        (Sgd(epochs=2, batch=40, lr=0.1, validation=0.25), 6, 0.1),  # 108 examples
    ],
)
def test_a_term_is_told_how_many_plain_steps_there_were_and_how_long(federation, task, local, steps, lr):
    local = replace(local, terms=(Telling(),))
    _, _, report = local(Baton(task.init(5)), visit_of(federation, task, round=3))
    assert (report.uplink["steps"], report.uplink["lr"]) == pytest.approx((steps, lr))


def test_terms_of_several_visits_at_once_are_told_each_their_own(federation, task):
    local, workspaces = Sgd(batch=8, lr=0.1, terms=(Telling(), Cutting())), Workspaces(task)
    visits = [replace(visit_of(federation, task, client=client), workspaces=workspaces) for client in (1, 2, 3)]
    for number, size in enumerate((20, 41, 8)):
        client = visits[number].client
        visits[number] = replace(visits[number], client=replace(client, rows=client.rows[:size]))
    batons = [Baton(task.init(seed)) for seed in range(3)]
    found = local.together(batons, visits)
    assert [report.uplink["steps"] for _, _, report in found] == [3, 6, 1]
    for start, visit, (baton, _, report) in zip(batons, visits, found, strict=True):
        assert report.client == visit.client.id
        assert report.uplink["received"] is start.params
        assert torch.equal(report.uplink["trained"], baton.params)
        assert baton.params[0] == start.params[0] + 1


def test_the_way_of_a_visit_is_the_sum_of_its_gradients():
    """What `steps` promises, where all gradients are the same: the loss is a plane."""
    federation = Federation.split(digits(), Iid(), 10)
    task = Task.of(Plane(), federation)
    for momentum in (0.0, 0.5, 0.9):
        local = Sgd(steps=7, batch=16, lr=0.1, momentum=momentum, terms=(Telling(),))
        start = torch.zeros(3)
        baton, _, report = local(Baton(start), visit_of(federation, task))
        gradient = (start - baton.params) / (report.uplink["steps"] * report.uplink["lr"])
        assert gradient.tolist() == pytest.approx([1, 2, 3], rel=1e-5)


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.at * torch.tensor([1.0, 2.0, 3.0])).sum().expand(len(x))


@dataclass(frozen=True)
class Plane:
    """The loss of every example is w1 + 2 w2 + 3 w3."""

    loss = "output"

    def __call__(self, shape, classes, /):
        return Slope()
