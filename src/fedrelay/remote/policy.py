"""What a client takes part in: a file of its own, which no server can change."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedrelay import config
from fedrelay.config import schema
from fedrelay.config.method import names_of
from fedrelay.data.own.brought import TABLE
from fedrelay.engines.remote.messages import Done, Failed, Request
from fedrelay.plans.sampling.target import Census
from fedrelay.remote.refusals import AgainstPolicy
from fedrelay.system import files
from fedrelay.types import Trait, Tree, Work
from fedrelay.visits.own_test import OwnTest
from fedrelay.visits.traits import TRAITS

CENSUS = "census"


@dataclass(frozen=True)
class Policy:
    """What a client does not refuse. None is anything.

    Args:
        methods: the methods that it trains for.
        traits: what it tells of its data so that clients can be grouped or drawn by it; `census` counts its classes.
        rounds: at most so many rounds of a run.
        statistics: whether it tells statistics of the columns of its table.
        tests: whether it tells what the model is worth on the share of its data that it holds out.
    """

    methods: tuple[str, ...] | None = None
    traits: tuple[str, ...] | None = None
    rounds: int | None = None
    statistics: bool = True
    tests: bool = True

    @classmethod
    def read(cls, path: Path) -> Policy:
        """From a TOML file."""
        found, _ = schema.build(cls, config.read(path), f"{path}", {})
        policy: Policy = found
        return policy

    def check_run(self, tables: Mapping[str, Any]) -> None:
        """Refuse a run by its configuration."""
        for name in names_of(config.section_of(tables, "algorithm").get("name")):
            if self.methods is not None and name not in self.methods:
                allowed = ", ".join(self.methods) or "none"
                raise AgainstPolicy(f"its policy does not allow the method {name!s:.60} (allowed: {allowed})")
        rounds = tables.get("rounds", 0)
        if self.rounds is not None and (not isinstance(rounds, int) or rounds > self.rounds):
            raise AgainstPolicy(f"its policy allows {self.rounds} rounds, and the run has {rounds!s:.20}")

    def check_told(self, told: Tree) -> None:
        """Refuse to tell statistics of a table."""
        if told.get("kind") == TABLE and not self.statistics:
            raise AgainstPolicy("its policy does not allow statistics of its table to be told")

    def why_not(self, request: Request, work: Work | None) -> str | None:
        """Why a visit is refused; None if it is not."""
        if self.rounds is not None and request.round > self.rounds:
            return f"its policy allows {self.rounds} rounds"
        if isinstance(work, OwnTest) and not self.tests:
            return "its policy does not allow it to tell what the model is worth on its data"
        name = CENSUS if isinstance(work, Census) else next((k for k, kind in TRAITS.items() if type(work) is kind), "")
        if isinstance(work, Trait | Census) and self.traits is not None and name not in self.traits:
            return f"its policy does not allow the trait {name or type(work).__name__} to be told"
        return None


class SentLog:
    """What has left the client, one line a message: never the numbers themselves."""

    NAME = "sent.jsonl"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.NAME
        if not self._path.exists():
            files.write(self._path, b"", mode=files.PRIVATE)

    def described(self, told: Tree) -> None:
        """What was told of the data, in full: it is short, and all that was told of it."""
        self._add({"what": "description", "told": told})

    def answered(self, request: Request, answer: Done | Failed, size: int) -> None:
        """An answer to a visit."""
        line: dict[str, Any] = {"what": "answer", "work": request.work, "round": request.round, "hop": request.hop}
        if isinstance(answer, Failed):
            line |= {"failed": answer.reason}
        else:
            model = 0 if isinstance(answer.params, str) else answer.params.numel()
            beside = {name: _shape(part) for name, part in answer.uplink.items()}
            line |= {"model": model, "examples": answer.examples, "metrics": dict(answer.metrics), "beside": beside}
        self._add(line | {"bytes": size})

    def _add(self, line: Mapping[str, Any]) -> None:
        text = json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **line}, ensure_ascii=False)
        # Not forced to the disk: a process that is killed loses nothing of it, and every visit would wait.
        files.append(self._path, f"{text}\n".encode(), sync=False)


def _shape(part: object) -> Any:
    """How much a part of an answer tells."""
    return list(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
