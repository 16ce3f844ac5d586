"""MA-Echo: one round; the server moves every client's layers where that client's own inputs do not notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal, cast

import torch
from torch import nn
from torch.nn import functional

from fedrelay.algorithms.change import Change
from fedrelay.errors import BadInput, within
from fedrelay.merges.mean import mean_model, merged, plain_weight
from fedrelay.plans import Singles
from fedrelay.tasks import PADDING, Task
from fedrelay.types import Merge, Outcome, State, Tree, Vector, Visit
from fedrelay.vectors import Entry, is_finite, weighted_sum
from fedrelay.visits.terms import Term

Variant = Literal["intended", "published"]

BATCH = 64
"""Of so many inputs the mean is taken, as in the authors' code."""
MOST_INPUTS = 1 << 14
ENOUGH = 2
"""The authors let a client have a say about a class from so many examples on; nobody is told of more."""


def maecho(*, step: float = 1.6, iterations: int = 50, scaled: bool = False, variant: Variant = "intended") -> Change:
    """Models are drawn together layer by layer, each only in directions that its own client's inputs do not have.

    Linear and convolutional layers go by projections (a convolution's are those of the patches that its filters see),
    each for itself, also beside a shortcut; a bias is the weight of an input that is always 1. A row of the last layer
    is the mean over the clients that have examples of its class. All else (normalisation and its statistics, layers of
    other kinds) is the mean by examples.

    When clients can be asked once and layers are narrow: besides its model a client sends, for every layer, the square
    of its number of inputs.

    Papers: step 1.6, 50 iterations (MLP); scaled, step 0.05, 300 iterations (CNN) (authors' code)

    Args:
        step: how far models move in an iteration (λ), below 2.
        iterations: how often.
        scaled: whether every row of a layer moves by exactly `step`, and not in proportion to what is left.
        variant: intended, or published: the authors' code, which takes only half of an input out of a projection, sees
            patches without a border at every other pixel, counts only clients with two examples of a class, and sets
            the row of a class that nobody has to zero.

    Reference: [Su et al. 2023](https://arxiv.org/abs/2204.12493)
    """
    within("step", step, above=0)
    if step >= 2:
        raise BadInput(f"step must be below 2, not {step:g}: from 2 on models are thrown farther away every time")
    within("iterations", iterations, least=0)
    if variant not in ("intended", "published"):
        raise BadInput(f"variant must be intended or published, not {variant!r}")
    merge = EchoMerge(step, iterations, scaled=scaled, variant=variant)
    return Change(plan=Singles(), terms=(Projections(variant),), merge=merge, fraction=1.0, rounds=1)


# --- which layers there are


@dataclass(frozen=True)
class Layer:
    """A linear or convolutional layer: a matrix with a row for every output; a bias is its last column."""

    name: str
    weight: Entry
    bias: Entry | None

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def inputs(self) -> int:
        return self.weight.size // self.outputs + (self.bias is not None)

    def matrix(self, params: Vector) -> torch.Tensor:
        """Its weights in a model (a copy)."""
        weight = self.weight.view(params).reshape(self.outputs, -1)
        return weight.clone() if self.bias is None else torch.cat((weight, self.bias.view(params)[:, None]), 1)

    def put(self, params: Vector, matrix: torch.Tensor) -> None:
        """Let a model have these weights."""
        columns = self.inputs - (self.bias is not None)
        self.weight.view(params).copy_(matrix[:, :columns].reshape(self.weight.shape))
        if self.bias is not None:
            self.bias.view(params).copy_(matrix[:, columns])


def layers_of(task: Task) -> tuple[tuple[Layer, ...], Layer | None]:
    """The layers that go by projections, and the last one, if its rows are classes."""
    entries = {entry.name: entry for entry in task.layout.entries if entry.start < task.layout.trainable}
    with torch.device("meta"):
        modules = list(task.model(task.shape, task.outputs).named_modules())
    layers, head = [], None
    for name, module in modules:
        known = isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
        if not known or f"{name}.weight" not in entries:
            continue
        layer = Layer(name, entries[f"{name}.weight"], entries.get(f"{name}.bias"))
        if name in task.parts.head and task.form.name == "classes" and layer.outputs == task.outputs:
            head = layer
        else:
            layers.append(layer)
    return tuple(layers), head


# --- at the client


@dataclass(frozen=True)
class Projections(Term):
    """After training the client sends, for every layer, the projection onto what its inputs leave free, and which
    classes it has."""

    variant: Variant = "intended"
    sends: ClassVar[bool] = True

    def adapt(self, task: Task, /) -> Task:
        for layer in layers_of(task)[0]:
            if layer.inputs > MOST_INPUTS:
                raise BadInput(
                    f"layer {layer.name} has {layer.inputs:,} inputs, so every client would send {layer.inputs**2:,} "
                    f"numbers for it: maecho takes layers of at most {MOST_INPUTS:,} inputs"
                )
        return task

    def specimen(self, task: Task, /) -> Tree:
        layers, head = layers_of(task)
        sides = {layer.name: layer.inputs for layer in layers}
        sent: dict[str, object] = {}
        if layers:
            sent["projections"] = {name: torch.empty(side, side, device="meta") for name, side in sides.items()}
        if head is not None:
            sent["owned"] = torch.empty(task.outputs, dtype=torch.uint8, device="meta")
        return sent

    def end(self, received: Vector, trained: Vector, visit: Visit, /, *, steps: float, lr: float) -> tuple[Tree, Tree]:
        layers, head = layers_of(visit.task)
        uplink: dict[str, object] = {}
        if layers:
            uplink["projections"] = projections(trained, visit, layers, published=self.variant == "published")
        if head is not None:
            uplink["owned"] = owned(visit)
        return visit.memory, uplink


@torch.no_grad()
def projections(trained: Vector, visit: Visit, layers: Sequence[Layer], *, published: bool) -> dict[str, torch.Tensor]:
    """The projection of every layer, from what it gets to see of the client's examples in one pass."""
    workspace, client = visit.workspaces.main, visit.client
    workspace.load(trained, training=False)
    modules = dict(workspace.network.named_modules())
    makers = {layer.name: Projector(layer, modules[layer.name], published=published) for layer in layers}
    hooks = [modules[name].register_forward_pre_hook(maker.see) for name, maker in makers.items()]
    try:
        for positions in torch.split(torch.arange(client.size), BATCH):
            workspace.network(client.take(positions, None)[0])
    finally:
        for hook in hooks:
            hook.remove()
    found = {name: maker.projection().to(trained.device) for name, maker in makers.items()}
    spoiled = next((name for name, projection in found.items() if not is_finite(projection)), None)
    if spoiled is not None:
        raise BadInput(f"the inputs of layer {spoiled} are not finite (a smaller [local] lr may help)")
    return found


class Projector:
    """Gathers what one layer sees. Paper: of a batch it is the mean input that counts, as in the authors' code."""

    def __init__(self, layer: Layer, module: nn.Module, *, published: bool) -> None:
        self._module, self._published, self._bias = module, published, layer.bias is not None
        self._ridge = 1e-4 if isinstance(module, nn.Conv2d) else 0.01**0.8
        size = layer.inputs
        # In main memory: what is inverted wants float64, which not every device has.
        self._seen = torch.eye(size, dtype=torch.float64) if published else torch.zeros(size, size, dtype=torch.float64)

    def see(self, module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        """A hook: a batch is about to go into the layer."""
        rows = self._rows(args[0].mean(0, keepdim=True)).cpu()
        if self._bias:
            rows = torch.cat((rows, torch.ones(len(rows), 1)), 1)
        if self._published:
            narrow(self._seen, rows.double(), self._ridge)
        else:
            self._seen.addmm_(rows.double().T, rows.double())

    def projection(self) -> torch.Tensor:
        return (self._seen if self._published else free_of(self._seen, self._ridge)).float()

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """What the layer multiplies its weights with, one a row: the input, or every patch of it."""
        module = self._module
        if not isinstance(module, nn.Conv2d):
            return x.reshape(-1, x.shape[-1])
        unfold = partial(functional.unfold, kernel_size=cast(tuple[int, int], module.kernel_size))
        if self._published:
            if min(have - need for have, need in zip(x.shape[2:], module.kernel_size, strict=True)) < 0:
                raise BadInput(f"images of {x.shape[2]}x{x.shape[3]} have no whole patch: take the intended variant")
            return unfold(x, stride=2)[0].T
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        around = functional.pad(x, module._reversed_padding_repeated_twice, mode=mode)
        strides = {"stride": cast(tuple[int, int], module.stride), "dilation": cast(tuple[int, int], module.dilation)}
        return unfold(around, **strides)[0].T


def free_of(squares: torch.Tensor, ridge: float) -> torch.Tensor:
    """(I + Σ r r' / a)⁻¹: what is left of a direction that the inputs r do not have; the projection onto their null
    space as a → 0."""
    whole = squares / ridge + torch.eye(len(squares), dtype=squares.dtype)
    return torch.cholesky_inverse(torch.linalg.cholesky(whole))


def narrow(projection: torch.Tensor, rows: torch.Tensor, ridge: float, share: float = 0.5) -> None:
    """Take a share of one input after another out of a projection, in place: P ← P - C k k' / (a + r'k), k = P r. With
    the whole (C = 1) it comes to `free_of`."""
    for row in rows:
        image = projection @ row
        projection.addr_(image, image, alpha=-share / (ridge + float(row @ image)))


def owned(visit: Visit) -> torch.Tensor:
    """How many examples the client has of each class, but never more than matter."""
    _, y = visit.client.take(torch.arange(visit.client.size), None)
    there = y[y != PADDING]
    return torch.bincount(there.reshape(-1), minlength=visit.task.outputs).clamp(max=ENOUGH).to(torch.uint8)


# --- at the server


@dataclass(frozen=True)
class EchoMerge(Merge):
    """Layer by layer, from the mean W of the clients' W_i: W ← W + λ mean((W - W_i)(P_i - I)), then
    W_i ← W_i + λ (W - W_i) P_i, and in the end the mean of the W_i.

    Paper: the clients count alike; weights from a quadratic programme are not used in the authors' code either.
    """

    step: float
    iterations: int
    scaled: bool = False
    variant: Variant = "intended"
    task: Task | None = field(default=None, compare=False, repr=False)

    def fitted(self, task: Task, seed: int, /) -> EchoMerge:
        return replace(self, task=task)

    def __call__(self, state: State, outcomes: Sequence[Outcome], /) -> State:
        assert self.task is not None
        layers, head = layers_of(self.task)
        models, sent = [each.baton.params for each in outcomes], [each.reports[-1].uplink for each in outcomes]
        given = [plain_weight(outcome) for outcome in outcomes]
        shares = [weight / sum(given) for weight in given]
        params = mean_model(outcomes)
        for layer in layers:
            found = self.drawn_together(
                [layer.matrix(model) for model in models], [each["projections"][layer.name] for each in sent], shares
            )
            layer.put(params, found)
        if head is not None:
            rows = [head.matrix(model) for model in models]
            head.put(params, by_class(rows, [each["owned"] for each in sent], published=self.variant == "published"))
        return merged(state, params)

    def drawn_together(
        self, own: Sequence[torch.Tensor], projections: Sequence[torch.Tensor], shares: Sequence[float]
    ) -> torch.Tensor:
        """One layer of all clients as one."""
        own = [matrix.clone() for matrix in own]
        common = weighted_sum(own, shares)
        for _ in range(self.iterations):
            apart = [common - matrix for matrix in own]
            pulls = [gap @ projection - gap for gap, projection in zip(apart, projections, strict=True)]
            common += self.step * weighted_sum(pulls, shares)
            for matrix, projection in zip(own, projections, strict=True):
                matrix += self.step * self.length((common - matrix) @ projection)
        return weighted_sum(own, shares)

    def length(self, move: torch.Tensor) -> torch.Tensor:
        """The move itself, or every row at length 1; a row that does not move has no direction and stays."""
        if not self.scaled:
            return move
        lengths = torch.linalg.vector_norm(move, dim=1, keepdim=True)
        return torch.where(lengths > 0, move / lengths.clamp(min=torch.finfo(move.dtype).tiny), 0.0)


def by_class(rows: Sequence[torch.Tensor], owned: Sequence[torch.Tensor], *, published: bool) -> torch.Tensor:
    """For every class (a row) the mean over the clients that have it; over all of them, if nobody does."""
    counts = torch.stack(list(owned)).to(rows[0].dtype)
    shares = (counts >= (ENOUGH if published else 1)).to(counts.dtype)
    missing = shares.sum(0) == 0
    if not published:
        shares[:, missing] = 1.0
    total = shares.sum(0).clamp(min=1.0)  # published: zeros where nobody has enough
    return torch.einsum("nc,nci->ci", shares, torch.stack(list(rows))) / total[:, None]
