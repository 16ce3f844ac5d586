"""Task2Vec: a client's data by how much each filter of a probe network matters to it (Achille et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.tasks import PADDING, OutputLoss, Task, unlike
from fedrelay.types import Baton, Kind, Report, Result, Trait, Visit
from fedrelay.visits.probe_networks import EfficientNetLite0, ProbeNetwork, SameModel

FORWARD = 256
HEAD_BATCH = 64


@dataclass(frozen=True)
class Task2Vec(Trait):
    """The diagonal Fisher information of a probe network's filters, after fitting a new head to the client's data
    (FedSeq journal 2024, ψ_t2v, Eq. 3). It needs no public data, and only the head is trained.

    The head is fitted by Adam for `epochs` of `samples` examples each, drawn so that all of the client's classes are
    equally frequent. The information is an expectation over labels drawn from the probe's own predictions; it is
    estimated from at least `draws` batches of `batch` examples, in whole passes over the client's. Of a client with
    more than `most` examples a random part is taken.
    """

    probe: ProbeNetwork = EfficientNetLite0()
    epochs: int = 10
    samples: int = 1000
    lr: float = 4e-4
    weight_decay: float = 1e-4
    draws: int = 24
    batch: int = 4
    most: int = 100
    kind: ClassVar[Kind] = "information"

    def __post_init__(self) -> None:
        for name in ("epochs", "samples", "draws", "batch", "most"):
            within(name, getattr(self, name), least=1)
        within("lr", self.lr, above=0)
        within("weight_decay", self.weight_decay, least=0)

    @property
    def reads_model(self) -> bool:
        return isinstance(self.probe, SameModel)

    def check(self, task: Task, /) -> None:
        if isinstance(task.loss, OutputLoss) or task.target not in ("classes", "tokens"):
            raise BadInput(f"Task2Vec needs examples with classes; {unlike(task)}")
        self.probe.check(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        client = visit.client
        draw = seeds.rng(visit.seed, "task2vec", client.id)
        body = self.probe(baton.params, visit).to(visit.workspaces.device)
        body.eval()
        rows = torch.from_numpy(draw.permutation(client.size)[: self.most])
        with seeds.torch_seed(visit.seed, "task2vec", client.id):
            head = self.fit(body, visit, rows, draw)
            passes = -(-self.draws // -(-len(rows) // self.batch))
            trait = self.information(body, head, visit, rows, passes)
        return baton, visit.memory, Report(client.id, len(rows) * (1 + passes), uplink={"trait": trait})

    def fit(self, body: nn.Module, visit: Visit, rows: torch.Tensor, draw: np.random.Generator) -> nn.Linear:
        """A new head on the features of these examples. The body is fixed, so it looks at each of them only once."""
        with torch.no_grad():
            found = [aligned(body(x), y) for x, y in batches(visit, rows, FORWARD)]
        features, targets = torch.cat([f for f, _ in found]), torch.cat([y for _, y in found])
        head = nn.Linear(features.shape[1], visit.task.classes).to(features.device)
        nn.init.zeros_(head.weight)  # a random start would tell clients apart that have the same data
        nn.init.zeros_(head.bias)
        adam = torch.optim.Adam(head.parameters(), self.lr, weight_decay=self.weight_decay, fused=True)
        classes = targets.cpu()
        chances = (1 / torch.bincount(classes)[classes]).double().numpy()
        chances /= chances.sum()
        for _ in range(self.epochs):
            chosen = torch.from_numpy(draw.choice(len(targets), self.samples, p=chances)).to(targets.device)
            for part in torch.split(chosen, HEAD_BATCH):
                adam.zero_grad()
                functional.cross_entropy(head(features[part]), targets[part]).backward()  # type: ignore[no-untyped-call]
                adam.step()
        return head

    def information(
        self, body: nn.Module, head: nn.Linear, visit: Visit, rows: torch.Tensor, passes: int
    ) -> torch.Tensor:
        """The mean squared gradient of the log-likelihood over each filter's weights.

        Labels are to be drawn from the model's predictions p. Where it is nearly sure, a drawn label is nearly always
        the same, and the estimate rests on the few that are not. A residual √p z - p (√p·z) with random signs z has the
        same mean 0 and the same covariance diag(p) - ppᵀ as that of a drawn label, but every example counts with its
        weight. With mean zero, the gradients of a batch do not correlate: the square of their sum has the expectation
        of the sum of their squares, so one pass does for all of them.
        """
        weights = [p for name, p in body.named_parameters() if "weight" in name.rpartition(".")[2] and p.requires_grad]
        if not weights:
            raise BadInput("the probe network has no trainable weight to measure the information of")
        total = [weight.new_zeros(len(weight)) for weight in weights]
        count = 0
        for _ in range(passes):
            for x, y in batches(visit, rows, self.batch):
                features, targets = aligned(body(x), y)
                logits = head(features)
                with torch.no_grad():
                    chances = logits.softmax(-1)
                    signed = chances.sqrt() * random_signs(logits.shape).to(logits.device)
                    residuals = signed - chances * signed.sum(-1, keepdim=True)
                gradients = torch.autograd.grad(logits, weights, residuals, allow_unused=True)
                for sum_of, gradient in zip(total, gradients, strict=True):
                    if gradient is not None:
                        sum_of += gradient.flatten(1).square().mean(1) if gradient.ndim > 1 else gradient.square()
                count += len(targets)
        return torch.cat(total) / count


def random_signs(shape: torch.Size) -> torch.Tensor:
    return torch.randint(0, 2, shape).float() * 2 - 1


def batches(visit: Visit, rows: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """These examples of the client, without augmentation."""
    for part in torch.split(rows, size):
        yield visit.client.take(part, None)


def aligned(features: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One row of features per target that counts: of every position of a sequence, or of its last one."""
    if features.ndim == 3 and y.ndim == 1:
        features = features[:, -1]
    rows, targets = features.reshape(-1, features.shape[-1]), y.reshape(-1).long()
    if len(rows) != len(targets):
        raise BadInput(
            f"a probe must return features (n, width), or (n, length, width) for sequences, and not "
            f"{tuple(features.shape)} for targets {tuple(y.shape)}"
        )
    counts = targets != PADDING
    return rows[counts], targets[counts]
