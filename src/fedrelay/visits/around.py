"""Work around another work: what it does not say of itself is the other's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedrelay.tasks import Task
from fedrelay.types import Baton, Result, Tree, Visit, Work


@dataclass(frozen=True)
class Around(Work):
    """Does the other's work, and something before or after it."""

    work: Work

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.work.keeps

    @property
    def reads_model(self) -> bool:
        return self.work.reads_model

    @property
    def reads_global(self) -> bool:
        return self.work.reads_global

    @property
    def guard(self) -> float | None:
        return self.work.guard

    @property
    def bound(self) -> float | None:
        return self.work.bound

    @property
    def brief(self) -> tuple[Work, float]:
        work, longer = self.work.brief
        return replace(self, work=work), longer

    def describing(self, work: Work, /) -> Work:
        return self.work.describing(work)

    def counted(self, size: int, /) -> int:
        return self.work.counted(size)

    def at_once(self, size: int, /) -> int:
        return self.work.at_once(size)

    def adapt(self, task: Task, /) -> Task:
        return self.work.adapt(task)

    def at_home(self, task: Task, /) -> tuple[slice, ...]:
        return self.work.at_home(task)

    def specimen(self, task: Task, /) -> Tree | None:
        return self.work.specimen(task)

    def stacks(self, task: Task, /) -> bool:
        return self.work.stacks(task)

    def __call__(self, baton: Baton, visit: Visit, /) -> Result:
        return self.work(baton, visit)

    def together(self, batons: Sequence[Baton], visits: Sequence[Visit], /) -> Sequence[Result]:
        return self.work.together(batons, visits)
