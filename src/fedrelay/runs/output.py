"""The model in your hand: what a finished run leaves so that it can be used, with fedrelay or without.

model.pt is a plain state_dict, and model.json says what it is of: the network and its parameters, the shape of an
input, the classes by name, and how inputs are scaled. preparation.json holds what a table's columns were prepared with.

What predicts need not be one model. An ensemble is one state_dict too, with the number of the model before every name
("0.head.weight"), as torch.nn.ModuleList has it. Where clients have models of their own, model.pt is what everybody
else uses, and client_models.pt has, for each of them by name, the tensors that are others than in model.pt.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import torch
from torch import nn

from fedrelay.data import Augment, Federation, Normalise, Transform
from fedrelay.data.augment import Levelled
from fedrelay.data.examples import Store, nested
from fedrelay.data.nests import Shape, leaves
from fedrelay.errors import BadInput
from fedrelay.models.described import build_model, describe_model
from fedrelay.models.inputs import spread
from fedrelay.runs.folder import CLIENT_MODELS, MODEL, MODEL_FACTS, PREPARATION, keep, load
from fedrelay.runs.json_files import dumps
from fedrelay.runs.results import named
from fedrelay.tasks import (
    BinaryCrossEntropy,
    CrossEntropy,
    Ensemble,
    OneModel,
    OpenSet,
    OpenSetVote,
    PerClient,
    Predictor,
    Workspaces,
)
from fedrelay.types import Vector

FORMAT = 1
Weights = dict[str, torch.Tensor]
T = TypeVar("T")

ONE, VOTE, OWN, OPEN = "one model", "ensemble", "one model per client", "open-set vote"


# --- writing


def write_model(
    folder: Path,
    predictor: Predictor,
    workspaces: Workspaces,
    *,
    examples: Store | None = None,
    federation: Federation | None = None,
) -> None:
    """Write the model and what is to be known of it; `examples` are some that it takes."""
    facts: dict[str, Any] = {"format": FORMAT} | facts_of(workspaces, examples, federation)
    if isinstance(predictor, PerClient):
        names = () if federation is None else federation.names
        common = weights_of(predictor.common, workspaces)
        own = {
            names[client] if names else f"client {client}": differing(weights_of(vector, workspaces), common)
            for client, vector in sorted(predictor.own.items())
        }
        facts |= {"predicts": OWN, "clients": list(own)}
        save(folder / CLIENT_MODELS, own)
        save(folder / MODEL, common)
    elif isinstance(predictor, OneModel):
        facts |= {"predicts": ONE}
        save(folder / MODEL, weights_of(predictor.params, workspaces))
    else:
        shares = predictor.shares if isinstance(predictor, Ensemble) else None
        kind = VOTE if isinstance(predictor, Ensemble) else type(predictor).__name__
        facts |= {"predicts": kind, "models": len(predictor.vectors), "shares": shares}
        if isinstance(predictor, OpenSet):
            vote = predictor.vote
            facts |= {"predicts": OPEN, "lowest": vote.lowest, "renormalise": vote.renormalise}
        several = [weights_of(vector, workspaces) for vector in predictor.vectors]
        save(folder / MODEL, {f"{n}.{key}": value for n, each in enumerate(several) for key, value in each.items()})
    preparation = None if federation is None else federation.source.preparation
    if preparation is not None:
        keep(folder / PREPARATION, json.dumps(preparation.plain(), indent=2, ensure_ascii=False) + "\n")
    keep(folder / MODEL_FACTS, dumps(facts, indent=2) + "\n")


def facts_of(workspaces: Workspaces, examples: Store | None, federation: Federation | None) -> dict[str, Any]:
    """What is to be known of a model to use it."""
    task, source = workspaces.task, None if federation is None else federation.source
    some = examples if source is None else source.test
    return {
        "model": describe_model(task.model),
        "shape": task.shape,
        "stored": None if some is None else stored_as(some if source is None else source.train),
        "tells_classes": isinstance(task.loss, CrossEntropy),
        "yes_or_no": isinstance(task.loss, BinaryCrossEntropy) and task.target == "classes",
        "outputs": task.outputs,
        "classes": task.classes,
        "class_names": list(named(() if source is None else source.class_names, task.classes)),
        "transform": None if some is None else describe_transform(some.transform),
        "levels": None if source is None else source.levels,
        "data": None if source is None else source.name,
        "preparation": PREPARATION if source is not None and source.preparation is not None else None,
    }


def describe_transform(transform: Transform | None) -> dict[str, Any] | None:
    """How stored inputs become what the network takes, in prediction: never with augmentation."""
    if transform is None:
        return None
    if isinstance(transform, Levelled):  # the levels are told apart
        transform = transform.then
    if isinstance(transform, Normalise | Augment):
        words = "(x / 255 - mean) / std for bytes, (x - mean) / std for floats"
        return {"name": "normalise", "mean": list(transform.mean), "std": list(transform.std), "is": words}
    return {"name": "own", "is": type(transform).__name__}


def stored_as(examples: Store) -> str | None:
    """The type of the numbers that inputs are before they are scaled; None where there are several inputs."""
    several = list(leaves(examples.with_transform(None).take(slice(0, 1))[0])) if len(examples) else []
    return str(several[0].dtype).removeprefix("torch.") if len(several) == 1 else None


def weights_of(vector: Vector, workspaces: Workspaces) -> Weights:
    """A model as torch keeps it: tensors by name, each with memory of its own."""
    workspaces.main.load(vector, training=False)
    found = workspaces.main.network.state_dict()
    return {name: each.detach().cpu().clone(memory_format=torch.contiguous_format) for name, each in found.items()}


def differing(weights: Weights, common: Weights) -> Weights:
    """The tensors that are not those of the common model: where only some layers stay at home, most are."""
    return {name: each for name, each in weights.items() if not torch.equal(each, common[name])}


def save(path: Path, weights: Mapping[str, Any]) -> None:
    content = io.BytesIO()
    torch.save(dict(weights), content)
    keep(path, content.getvalue())


# --- reading


@dataclass(frozen=True)
class Trained:
    """The model of a finished run."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def shape(self) -> Shape:
        """Of one input, as the network takes it; of several, a tuple or dict of shapes."""
        return shape_of(self.facts["shape"])

    def one_input(self, what: str) -> tuple[int, ...]:
        """Its shape; a network that takes several is refused."""
        if nested(self.shape):
            raise BadInput(
                f"the network of {self.folder} takes several inputs, {what} only one: use fedrelay.load_model in Python"
            )
        shape: tuple[int, ...] = self.shape
        return shape

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.facts["class_names"])

    @property
    def tells_classes(self) -> bool:
        """Whether the outputs are logits of classes."""
        return bool(self.facts["tells_classes"])

    @property
    def yes_or_no(self) -> bool:
        """Whether the one output is the logit of the second of two classes."""
        return bool(self.facts.get("yes_or_no"))

    @property
    def transform(self) -> Transform | None:
        """How stored inputs are scaled; one of the user's own is refused, because it is not in the folder."""
        found = self.facts["transform"]
        if found is None:
            return None
        if found.get("name") != "normalise":
            raise BadInput(
                f"the inputs of {self.folder} went through a transform of your own ({found.get('is')}), which is not "
                "in the folder: use fedrelay.load_model in Python, on inputs that went through it"
            )
        return self._made(lambda: Normalise(tuple(found["mean"]), tuple(found["std"])))

    def network(self, own: nn.Module | None = None, *, client: str | None = None) -> nn.Module:
        """The network with its weights, ready to predict; `own` is one of the user's, which is filled."""
        kind = self.facts["predicts"]
        if client is not None:
            return self._filled(self._bare(own), self._of_client(client))
        weights = read_weights(self.folder / MODEL)
        if kind in (ONE, OWN):
            return self._filled(self._bare(own), weights)
        if kind not in (VOTE, OPEN):
            raise BadInput(
                f"{self.folder} predicts by {kind}, of which only the models are in {MODEL}, not how to ask them"
            )
        count = int(self.facts["models"])
        models = self._filled(nn.ModuleList(self._bare(own) for _ in range(count)), weights)
        if kind == OPEN:
            return OpenVoting(models, OpenSetVote(self.facts["lowest"], self.facts["renormalise"])).eval()
        return Voting(models, self.facts["shares"] or (1.0,) * count).eval()

    def _of_client(self, client: str) -> Any:
        own: Sequence[str] = self.facts.get("clients") or ()
        if client not in own:
            there = ", ".join(own[:10]) or "none"
            raise BadInput(f"{self.folder} has no model of client {client!r} (those with one of their own: {there})")
        return read_weights(self.folder / MODEL) | read_weights(self.folder / CLIENT_MODELS)[client]

    def _bare(self, own: nn.Module | None) -> nn.Module:
        """A network without weights worth keeping."""
        if own is not None:
            return spread(deepcopy(own), self.shape)
        model = self._made(lambda: build_model(self.facts["model"]))
        if model is None:
            raise BadInput(
                f"the network of {self.folder} is your own ({self.facts['model']['is']}), and its code is not in the "
                f"folder: fedrelay.load_model({str(self.folder)!r}, network=…) fills it with the weights of {MODEL}"
            )
        outputs = self.facts.get("outputs", self.facts["classes"])  # older runs: one for every class
        return self._made(lambda: spread(model(self.shape, int(outputs)), self.shape))

    def _made(self, make: Callable[[], T]) -> T:
        """A damaged description makes the network's maker fail in many ways."""
        try:
            return make()
        except BadInput:
            raise
        except Exception as error:
            raise damaged_facts(self.folder / MODEL_FACTS, f"{type(error).__name__}: {error}"[:200]) from None

    def _filled(self, network: nn.Module, weights: Mapping[str, torch.Tensor]) -> nn.Module:
        try:
            network.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise BadInput(f"the weights in {self.folder} are of another network: {error}") from None
        return network.eval()


def shape_of(plain: Any) -> Shape:
    """A shape as JSON has it: lists for tuples."""
    if isinstance(plain, dict):
        return {key: shape_of(part) for key, part in plain.items()}
    return tuple(shape_of(part) for part in plain) if isinstance(plain, list) else plain


class Voting(nn.Module):
    """Several networks that vote: the logarithm of the mean of the probabilities they give, by their shares."""

    def __init__(self, models: nn.Module, shares: Sequence[float]) -> None:
        super().__init__()
        self.models = models
        self.shares = [share / sum(shares) for share in shares]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = [
            share * model(x).softmax(-1) for share, model in zip(self.shares, self.models.children(), strict=True)
        ]
        return torch.stack(chances).sum(0).log()


class OpenVoting(nn.Module):
    """Several networks whose last output is "unknown" and that vote on the classes."""

    def __init__(self, models: nn.Module, vote: OpenSetVote) -> None:
        super().__init__()
        self.models, self.vote = models, vote

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.vote(torch.stack([model(x) for model in self.models.children()]))


def load_trained(folder: Path | str) -> Trained:
    """The model of the run in this folder; a run that has not ended is refused."""
    folder = Path(folder)
    if load(folder).summary is None:
        raise BadInput(
            f"the run in {folder} is not finished, so it has no model to use yet: "
            "go on with it (the same command with --resume)"
        )
    path = folder / MODEL_FACTS
    if not path.is_file() or not (folder / MODEL).is_file():
        raise BadInput(
            f"{folder} has no {MODEL}: runs of older versions have none; "
            "the command that made it, with --resume, writes it without training again"
        )
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged_facts(path, str(error)) from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise BadInput(f"{path}: expected format {FORMAT}, which this version reads, found another")
    for key, kinds in FACTS.items():
        if not isinstance(facts.get(key, MISSING), kinds):
            raise damaged_facts(path, f"{key} is not as it was written")
    return Trained(folder, facts)


FACTS: Mapping[str, tuple[type, ...]] = {
    "model": (dict,),
    "shape": (list, dict, int),
    "classes": (int,),
    "class_names": (list,),
    "tells_classes": (bool,),
    "transform": (dict, NoneType),
    "predicts": (str,),
}
"""What every model.json says."""


def damaged_facts(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): delete it and run with --resume to write it anew")


def read_weights(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: run with --resume to write it anew") from None
    except Exception as error:  # a damaged file makes the reader fail in many ways
        raise BadInput(f"{path} is damaged ({type(error).__name__}): run with --resume to write it anew") from None
