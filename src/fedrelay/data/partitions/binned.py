"""Splits by class for data whose targets are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedrelay.data.examples import Examples
from fedrelay.data.federation import Partition, Rows, Source
from fedrelay.data.partitions.basic import Dirichlet
from fedrelay.errors import BadInput, within


@dataclass(frozen=True)
class Quantiles:
    """Numbers are cut into `bins` of equally many examples, from low to high, which another partition (`of`) takes for
    classes: so clients have unlike targets. Of several numbers the first one counts."""

    bins: int = 10
    of: Partition = Dirichlet()

    def __post_init__(self) -> None:
        within("bins", self.bins, least=2)

    def __call__(self, source: Source, clients: int | None, rng: np.random.Generator, /) -> Sequence[Rows]:
        train = source.train
        if train.target != "numbers":
            raise BadInput(f"the partition quantiles is for targets that are numbers, and {source.name} has others")
        numbers = train.y.reshape(len(train), -1)[:, 0].numpy()
        if self.bins > len(numbers):
            raise BadInput(f"{len(numbers)} examples cannot be cut into {self.bins} bins: ask for fewer bins")
        edges = np.quantile(numbers, np.arange(1, self.bins) / self.bins)
        # Of the inputs nothing is wanted but their number.
        classes = torch.from_numpy(np.searchsorted(edges, numbers, side="right").astype(np.int64))
        return self.of(replace(source, train=Examples(classes, classes), classes=self.bins), clients, rng)
