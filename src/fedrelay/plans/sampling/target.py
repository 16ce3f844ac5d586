"""Target sampling: what clustering by similarity would find if it could look at the clients' classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedrelay.errors import BadInput
from fedrelay.plans.grouping.groups import Groups
from fedrelay.plans.sampling.sampler import NOTHING, Sampler
from fedrelay.plans.sampling.urns import Urns, by_clusters
from fedrelay.plans.sampling.ward import FARTHEST, KINDS, ward
from fedrelay.tasks import Task
from fedrelay.types import NOT_JOINED, Baton, Drop, Report, Result, Survey, Tree, Visit, Work


@dataclass(frozen=True)
class Census(Work):
    """A visit that only counts the client's examples of every class."""

    @property
    def reads_model(self) -> bool:
        return False

    def specimen(self, task: Task, /) -> Tree:
        return {"classes": torch.empty(task.classes, dtype=torch.int64, device="meta")}

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        labels = visit.client.examples.labels[visit.client.rows.numpy()]
        counts = torch.from_numpy(np.bincount(labels, minlength=visit.task.classes))
        return baton, visit.memory, Report(visit.client.id, 0, uplink={"classes": counts})


@dataclass(frozen=True)
class Target(Sampler):
    """Clustered by known classes: the ideal that similarity approaches (clustered sampling 2021, Sec. 6). Every client
    must tell how many examples of which class it has, so it is a reference, not something to deploy.

    Paper: only clients of one class are considered; with mixed ones, Ward's clustering of the class shares takes the
    place of that of the gradients. More than 10,000 clients or groups are put into 1,000 kinds first, as there.
    """

    def distributions(self, sizes: Sequence[int], count: int, memo: Tree = NOTHING) -> Urns:
        if "tree" not in memo:
            raise BadInput("target sampling must know the clients' classes: give the memo that begin() made of them")
        return by_clusters(memo["tree"].numpy(), sizes, count)

    def init(self, survey: Survey, /) -> Tree:
        answers = list(survey(Census()))
        for answer in answers:
            if isinstance(answer, Drop) and answer.reason != NOT_JOINED:
                raise BadInput(
                    f"target sampling must know every client's classes; client {answer.client}: {answer.reason}"
                )
        none = torch.zeros(survey.task.classes, dtype=torch.int64)  # of who has not joined, and is in no group
        return {"classes": torch.stack([one.uplink["classes"] if isinstance(one, Report) else none for one in answers])}

    def grown(self, memo: Tree, survey: Survey, /) -> Tree:
        return self.init(survey)

    def begin(self, memo: Tree, groups: Groups, /) -> tuple[Tree, None]:
        if memo.get("groups") == groups:
            return memo, None
        counts = np.array([memo["classes"][list(group)].sum(dim=0).numpy() for group in groups], dtype=np.float64)
        shares = counts / counts.sum(axis=1, keepdims=True)
        kinds = KINDS if len(groups) > FARTHEST else None
        tree = torch.from_numpy(ward(shares, range(len(groups)), len(groups), "l2", kinds=kinds))
        return {**memo, "groups": groups, "tree": tree}, None
