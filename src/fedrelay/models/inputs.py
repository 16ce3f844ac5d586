"""How a network is given several inputs: as its `forward` is written."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from fedrelay.data.examples import nested
from fedrelay.data.nests import Shape
from fedrelay.errors import BadInput
from fedrelay.models.network import Network


def spread(network: nn.Module, shape: Shape) -> nn.Module:
    """The network, ready for inputs of this shape: called with a tuple or dict, it gets them as it names them.

    A tuple becomes positional arguments, a dict keyword arguments; a `forward` with room for one argument gets the
    tuple, and one that does not name the dict's keys the dict, as they are.
    """
    if not nested(shape):
        return network
    inner = network.body if isinstance(network, Network) else network
    try:
        parameters = inspect.signature(inner.forward).parameters.values()
    except (TypeError, ValueError):  # compiled code does not tell: it gets what there is
        return network
    if isinstance(shape, dict):
        if takes_names(parameters, list(shape)):
            inner.register_forward_pre_hook(by_name, with_kwargs=True)
    elif room(parameters) > 1:
        if len(shape) > room(parameters):
            raise BadInput(
                f"{type(inner).__name__}.forward takes {room(parameters)} inputs, but every example has {len(shape)}"
            )
        inner.register_forward_pre_hook(by_place, with_kwargs=True)
    return network


def takes_names(parameters: Any, names: list[Any]) -> bool:
    """Whether all of these are names of arguments."""
    known = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
    # One that takes anything must name at least one of them: forward(self, batch, **options) means the dict.
    return known.issuperset(names) or (anything and not known.isdisjoint(names))


def room(parameters: Any) -> float:
    """How many positional arguments there is room for."""
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return float("inf")
    return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)


def by_place(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A lone tuple becomes arguments."""
    return (given[0] if len(given) == 1 and isinstance(given[0], tuple) else given), named


def by_name(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A lone dict becomes named arguments."""
    return ((), {**given[0], **named}) if len(given) == 1 and isinstance(given[0], dict) else (given, named)
