"""Clustered by similarity: alike clients share an urn, so that a round sees every kind of them (Alg. 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.errors import BadInput, within
from fedrelay.plans.background import in_thread
from fedrelay.plans.grouping.groups import Alone, Groups
from fedrelay.plans.sampling.sampler import NOTHING, Sampler, checked
from fedrelay.plans.sampling.urns import Urns, Whole, by_clusters
from fedrelay.plans.sampling.ward import FARTHEST, KINDS, Rows, Similarity, published_ward, ward
from fedrelay.types import LATER, Outcome, Survey, Tree, Vector

When = Literal["beside", "after"]
Variant = Literal["paper", "published"]
MOST_NUMBERS = 1024
"""More are kept of nobody where there are very many clients."""
CHOICES = {"similarity": get_args(Similarity), "when": get_args(When), "variant": get_args(Variant)}


@dataclass(frozen=True)
class BySimilarity(Sampler):
    """Clustered by similarity: Ward's clustering of what clients last did to the model decides who shares one of m
    urns, from each of which one is drawn (clustered sampling 2021, Alg. 2).

    A client's representative gradient is the model that came back minus the model that was sent, in the last round in
    which it took part; before that it is zero. A group's is the mean of its clients', who share that of their chain.
    Only clients that took part cost memory.

    `when` = "beside": the urns of the next round are computed while a round trains, from what was known when it began
    (end of Section 5), so that they cost no time where a core is free. "after": from all that came back, as the
    published code does, before the next round can begin.

    `sketch` keeps only so many numbers of a gradient, a random projection, for arccos and L2. Its standard error is
    about (1 − cos²) / √sketch of a cosine, and a share 1 / √(2 · sketch) of an L2 distance.

    Paper: Ward's clustering of all clients. More than 10,000 clients or groups are put into 1,000 kinds first, by
    k-means, and Ward's clustering joins those, in which a kind counts as all it has. `kinds` says how many (10,000 at
    most), whatever the number of clients. Then a sketch is needed too, unless the model is small.

    `variant` = "published" clusters as the authors' code does, for comparison.
    """

    similarity: Similarity = "arccos"
    when: When = "beside"
    sketch: int | None = None
    variant: Variant = "paper"
    kinds: int | None = field(default=None, metadata={LATER: True})

    def __post_init__(self) -> None:
        for name, words in CHOICES.items():
            if getattr(self, name) not in words:
                raise BadInput(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not {getattr(self, name)!r}")
        if self.sketch is not None:
            if not isinstance(self.sketch, int):
                raise BadInput(f"sketch must be a whole number, not {self.sketch!r}")
            within("sketch", self.sketch, least=1)
            if self.similarity == "l1":
                raise BadInput("a sketch keeps angles and L2 distances, not L1: use arccos or l2, or sketch = none")

        if self.kinds is not None:
            within("kinds", self.kinds, least=2, most=FARTHEST)
            self.check_kinds("kinds are means of clients")

    def check_kinds(self, why: str) -> None:
        """Refuse what kinds cannot do."""
        if self.similarity == "l1" or self.variant == "published":
            what = "L1 distances" if self.similarity == "l1" else 'variant = "published"'
            raise BadInput(f"{what} cannot be had by similarity here ({why}): take arccos or l2 as the paper has it")

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Urns:
        """From the tree in the memo; without one nothing is known yet, and everybody is alike."""
        known = checked(sizes, count)
        tree = memo["tree"].numpy() if "tree" in memo else ward(np.empty((0, 1)), (), len(known), self.similarity)
        return by_clusters(tree, known, count)

    def init(self, survey: Survey, /) -> Tree:
        clients, numbers = len(survey.names), survey.task.layout.size
        if clients > FARTHEST and self.sketch is None and numbers > MOST_NUMBERS:
            raise BadInput(
                f"by_similarity keeps {numbers:,} numbers of every client that took part: "
                f"{clients * numbers * 4e-9:,.1f} GB when all {clients:,} have; say sketch = 256, which keeps cosines "
                "to about 0.06"
            )
        return {"gradients": {}, "last": {}, "made": 0}

    def begin(self, memo: Tree, groups: Groups, /) -> tuple[Tree, Future[torch.Tensor] | None]:
        again = memo.get("groups", groups) == groups
        tree = memo["tree"] if again and "tree" in memo else self.tree(memo, groups)
        now = {**memo, "groups": groups, "tree": tree}
        # Groups that were made anew will be so again, and then a tree of the present ones would be of no use.
        wanted = self.when == "beside" and again
        return now, in_thread(self.tree, memo, groups, elsewhere=True) if wanted else None

    def learn(self, memo: Tree, outcomes: Sequence[Outcome], coming: Future[torch.Tensor] | None, /) -> Tree:
        known = {**self.remember(memo, outcomes), "groups": memo["groups"]}
        return known if coming is None else {**known, "tree": coming.result()}

    def remember(self, memo: Tree, outcomes: Sequence[Outcome]) -> Tree:
        """Gradients by a running number, and which of them is each client's last one."""
        gradients, last, made = dict(memo["gradients"]), dict(memo["last"]), memo["made"]
        for outcome in outcomes:
            if outcome.reports:
                gradients[made] = self.kept(outcome.baton.params - outcome.chain.start.params)
                last.update({report.client: made for report in outcome.reports})
                made += 1
        used = set(last.values())
        gradients = {number: gradient for number, gradient in gradients.items() if number in used}
        return {"gradients": gradients, "last": last, "made": made}

    def kept(self, gradient: Vector) -> Vector:
        """What is remembered of a gradient."""
        gradient = gradient.cpu()  # what plans remember is in main memory
        if self.sketch is None or self.sketch >= len(gradient):
            return gradient
        buckets, signs = projection(len(gradient), self.sketch)
        return torch.from_numpy(np.bincount(buckets, signs * gradient.numpy(), self.sketch).astype(np.float32))

    def tree(self, memo: Tree, groups: Groups, *, elsewhere: bool = False) -> torch.Tensor:
        """Who is alike among these groups, from the gradients in the memo."""
        count, last = len(groups), memo["last"]
        if isinstance(groups, Alone):
            places = sorted(last)
        else:
            places = [place for place, group in enumerate(groups) if any(client in last for client in group)]
        rows = represented([groups[place] for place in places], last, memo["gradients"])
        kinds = self.kinds
        if kinds is None and count > FARTHEST:
            self.check_kinds(f"all distances of every two are known for {FARTHEST:,} at most, and there are {count:,}")
            kinds = KINDS
        if self.variant == "published":
            return torch.from_numpy(published_ward(rows, places, count, self.similarity))
        return torch.from_numpy(ward(rows, places, count, self.similarity, kinds=kinds, elsewhere=elsewhere))


def represented(groups: Sequence[Sequence[int]], last: Mapping[int, int], gradients: Mapping[int, Vector]) -> Rows:
    """The representative gradient of every group: the mean over its clients of the last gradient of each, or zero."""
    width = len(next(iter(gradients.values()))) if gradients else 1
    rows: list[NDArray[np.floating[Any]]] = []
    for group in groups:
        shares = Counter(last[client] for client in group if client in last)
        if len(group) in shares.values():  # all of it trained as one, as a client alone always does: no copy
            rows.append(gradients[next(iter(shares))].numpy())
            continue
        row = np.zeros(width)
        for number, times in shares.items():
            row += gradients[number].numpy() * np.float64(times / len(group))
        rows.append(row)
    return rows


@lru_cache(maxsize=2)
def projection(size: int, buckets: int) -> tuple[Whole, NDArray[np.float64]]:
    """A bucket and a sign for every coordinate (a count sketch): the same in every run, so they are never stored."""
    rng = seeds.rng(0, "sketch", size, buckets)
    return rng.integers(0, buckets, size), rng.choice(np.array([-1.0, 1.0]), size)
