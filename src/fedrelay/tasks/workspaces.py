"""The workspaces of a task in one process, made when they are first needed."""

from __future__ import annotations

from functools import cached_property

import torch

from fedrelay.errors import BadInput
from fedrelay.kernels.workspace import Computing, StackedWorkspace, Workspace
from fedrelay.tasks.task import Task


class Workspaces:
    """Where the models of a task are trained and looked at. They belong to whoever makes visits, not to the task."""

    def __init__(
        self, task: Task, *, native: bool = False, threads: int = 1, computing: Computing = Computing()
    ) -> None:
        self.task, self._native, self._computing = task, native, computing
        self.device, self._threads = computing.device, threads
        self._sides: dict[str, Workspace] = {}
        self.threads_used = 1
        """How many trained at once when somebody asked for them last."""
        self._stack: StackedWorkspace | None = None

    @cached_property
    def main(self) -> Workspace:
        """For the model that is trained."""
        return self._make()

    def for_threads(self, most: int) -> list[Workspace]:
        """One for each thread that trains models beside others, but no more than so many; `main` is the first."""
        count = self.threads_used = max(min(self._threads, most), 1)
        return [self.main, *(self.side(f"thread {number}") for number in range(1, count))]

    def side(self, name: str = "received") -> Workspace:
        """For a model that is only looked at while another one is trained; there is one for every name."""
        if name not in self._sides:
            self._sides[name] = self._make()
        return self._sides[name]

    def _make(self) -> Workspace:
        task = self.task
        how = {"written": task.plain, "native": self._native}
        return Workspace(task.network(), task.layout, task.loss, computing=self._computing, **how)

    def stack(self, rows: int) -> StackedWorkspace:
        """Room for this many models at once; whoever works there first fills `weights`."""
        if not self.task.stacks:
            raise BadInput(f"{self.task.model} cannot be stacked: its models can only be trained one by one")
        if self._stack is None or len(self._stack.weights) < rows:
            # Two pieces, so that both begin where memory is aligned however many rows there are: bits depend on it.
            size = rows, self.task.layout.trainable
            weights, gradient = (torch.empty(size, device=self.device) for _ in range(2))
            self._stack = StackedWorkspace(self.task.network(), self.task.layout, weights, gradient)
        return self._stack.first(rows)
