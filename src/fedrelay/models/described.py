"""Models as plain data, so that a network can be built again from a file beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.models import MODELS, Fused, Model, Open

AROUND: dict[str, Any] = {"fused": Fused, "open": Open}
"""Models that methods put around the user's."""


def describe_model(model: Model) -> dict[str, Any]:
    """The name of a model with its parameters; `own` stands for a network that only its owner can build."""
    kinds: dict[str, Any] = {**MODELS, **AROUND}
    name = next((name for name, kind in kinds.items() if type(model) is kind), None)
    if name is None or not is_dataclass(model):
        module = getattr(model, "module", model)
        return {"name": "own", "is": type(module).__name__}
    return {"name": name} | {part.name: _plain(getattr(model, part.name)) for part in fields(model)}


def build_model(described: Mapping[str, Any]) -> Model | None:
    """What `describe_model` described; None if only its owner can build it."""
    rest = dict(described)
    name = rest.pop("name", None)
    if name == "own":
        return None
    kinds: dict[str, Any] = {**MODELS, **AROUND}
    if name not in kinds:
        raise BadInput(f"there is no model {name!r} here: it was made by another version, or by a package of its own")
    arguments = {key: build_model(value) if isinstance(value, Mapping) else value for key, value in rest.items()}
    model: Model = kinds[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in arguments.items()})
    return model


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else describe_model(value)
