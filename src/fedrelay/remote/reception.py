"""Who may take part: what a client says when it comes, what it is told, and why it is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch

from fedrelay.data.own.brought import agree
from fedrelay.data.own.telling import MOST_ROWS, check_bounds
from fedrelay.engines.remote.trees import Malformed
from fedrelay.errors import BadInput

LOG = logging.getLogger("fedrelay")

PROTOCOL = 4
"""Raised whenever messages change: both sides must have the same."""


class Refused(Exception):
    """Why a client may not take part, in words for whoever runs it. It may try `again` for so many seconds."""

    def __init__(self, reason: str, again: float = 0.0) -> None:
        super().__init__(reason)
        self.again = again

    def tree(self) -> dict[str, Any]:
        """As the client is told."""
        return {"is": "refused", "reason": str(self), "again": self.again}


def environment() -> dict[str, Any]:
    """What both sides must have in common, and what decides the bits."""
    return {
        "protocol": PROTOCOL,
        "fedrelay": metadata.version("fedrelay"),
        "torch": torch.__version__.partition("+")[0],
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def need(tree: Any, kind: str, fields: Mapping[str, type | tuple[type, ...]]) -> Mapping[str, Any]:
    """A message of this kind with these fields; whatever is none is refused."""
    if not isinstance(tree, dict) or tree.get("is") != kind:
        raise Malformed(f"expected a {kind}")
    for name, types in fields.items():
        if not isinstance(tree.get(name), types):
            raise Malformed(f"{kind}.{name} is a {type(tree.get(name)).__name__}")
    return tree


ABOUT = {"protocol": int, "fedrelay": str, "torch": str, "processor": str}
HELLO = {**ABOUT, **dict.fromkeys(("name", "instance", "working", "has"), str)}
DESCRIBED = {"data": dict}
READY = {"size": int, "parameters": int, "trainable": int}
EXPERIMENT = "experiment"
"""The kind of data of a client that has its part of the data set which the experiment names."""


@dataclass(frozen=True)
class Expected:
    """What a client's data and model must be."""

    parameters: int
    trainable: int
    sizes: Sequence[int] | None = None
    """How many examples every client has, where the server knows."""


class Reception:
    """Lets clients in. A client's number is the place of its name, whenever it comes.

    A client says `hello` and is told in a `welcome` how it reads its data; it says what it has (`described`), is told
    what all agreed on and what the run is (`prepared`), and is `ready` when its model is built. Without `known`, which
    says why a client with this name and certificate may not come (None: it may), names are not proven.
    """

    def __init__(
        self,
        names: Sequence[str],
        data: Mapping[str, Any],
        *,
        own: bool,
        known: Callable[[str, str], str | None] | None = None,
    ) -> None:
        self.names, self.descriptions = tuple(names), dict[int, Mapping[str, Any]]()
        self.refusals: dict[int, str] = {}
        """Why clients that have described their data are let go; they are told when they are next listened to."""
        self.data, self._own, self._known = data, own, known
        self._offer: Mapping[str, Any] | None = None
        self._expected: Expected | None = None
        self._told = set[str]()

    # --- what the server does

    def offer(self, offer: Mapping[str, Any], expected: Expected) -> None:
        """What clients are told of the run from now on, and what they must have."""
        self._offer, self._expected = {"is": "prepared", **offer}, expected

    def refuse(self, number: int, reason: str) -> None:
        """Let this client go, which has described its data and waits."""
        LOG.warning("%s does not take part: %s", self.names[number], reason)
        self.refusals[number] = f"this client's data does not go with that of most others: {reason}"
        self.descriptions.pop(number, None)

    # --- what a client says

    def welcome(self, hello: Any, certificate: tuple[str, str] | None) -> tuple[int, dict[str, Any]]:
        """The number of a client and what it is told; one that may not take part is refused."""
        try:
            said = need(hello, "hello", HELLO)
        except Malformed as error:
            raise Refused(f"the server speaks protocol {PROTOCOL} of fedrelay, and cannot read this: {error}") from None
        name = self._name(said, certificate)
        self._check_software(name, said)
        number = self.names.index(name)
        return number, self.told(number)

    def told(self, number: int) -> dict[str, Any]:
        """What a client is told of itself, and of how its data is read."""
        name = self.names[number]
        return {"is": "welcome", "number": number, "name": name, "data": self.data, "own": self._own}

    def why_not(self, name: str, pem: str) -> str | None:
        """Why a client with this certificate may not take part (any more); None if it may."""
        try:
            return None if self._known is None else self._known(name, pem)
        except (BadInput, OSError) as error:
            return f"the server cannot read its list of clients ({error})"

    def _name(self, said: Mapping[str, Any], certificate: tuple[str, str] | None) -> str:
        name: str = said["name"] if certificate is None else certificate[0]
        reason = None if certificate is None else self.why_not(*certificate)
        if reason is not None:
            raise Refused(reason)
        if name not in self.names:
            raise Refused(
                f"{name!r:.80} is no client of this run: the server knows {', '.join(self.names[:10])}"
                f"{' …' if len(self.names) > 10 else ''}"
            )
        return name

    def _check_software(self, name: str, said: Mapping[str, Any]) -> None:
        """Refuse another protocol or version; what only changes bits is told once."""
        ours = environment()
        for key in ("protocol", "fedrelay"):
            if said[key] != ours[key]:
                raise Refused(
                    f"the server has {key} {ours[key]}, this client {said[key]!s:.40}: install the same version of "
                    "fedrelay on both (a server is upgraded when its run has ended, and its clients with it)"
                )
        for key in ("torch", "processor"):
            text = f"{name} has {key} {said[key]!r:.40}, the server {ours[key]!r}: bits may differ from a simulation's"
            if said[key] != ours[key] and text not in self._told:
                self._told.add(text)
                LOG.warning("%s", text)

    def describe(self, number: int, described: Any) -> None:
        """What a client tells of its data; what cannot be put together with others' is refused."""
        try:
            data = need(described, "described", DESCRIBED)["data"]
            if self._own and data.get("kind") == EXPERIMENT:
                raise Refused("the server has no data for its clients: say with --data what this client brings")
            if not self._own and data.get("kind") != EXPERIMENT:
                raise Refused("the clients of this run take their part of the experiment's data set: --data experiment")
            if self._own:
                check_bounds(data)
                with suppress(BadInput):  # alone it may be too little to agree on
                    agree({self.names[number]: data}, self.data)
        except BadInput as error:
            raise Refused(f"what the client tells of its data cannot be taken: {error}") from None
        except (Malformed, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise Refused(f"what the client tells of its data cannot be read: {error!s:.200}") from None
        self.refusals.pop(number, None)
        self.descriptions[number] = data

    def check_agreed(self, number: int) -> None:
        """Refuse a client whose data does not go with the others'."""
        reason = self.refusals.pop(number, None)
        if reason is not None:
            raise Refused(reason)

    def prepared(self, has: str = "") -> Mapping[str, Any]:
        """What a client is told once all agree; one that has been told already (`has` is of what) is not told again."""
        assert self._offer is not None
        if has and has == self._offer["digest"]:
            return {key: self._offer[key] for key in ("is", "run", "digest")}
        return self._offer

    def admit(self, number: int, ready: Any) -> int:
        """A client that has looked at its data and built its model; what does not fit is refused. How many examples it
        has to train on."""
        try:
            said = need(ready, "ready", READY)
        except Malformed as error:
            raise Refused(f"the client's answer cannot be read: {error}") from None
        expected = self._expected
        assert expected is not None
        if (said["parameters"], said["trainable"]) != (expected.parameters, expected.trainable):
            raise Refused(
                f"the client's data makes a model of {said['parameters']} numbers, the server's has "
                f"{expected.parameters}: inputs or classes differ from what the server expects"
            )
        if expected.sizes is not None and said["size"] != expected.sizes[number]:
            raise Refused(
                f"the client has {said['size']} examples, and by the experiment's [data] it should have "
                f"{expected.sizes[number]}: the data set or its split is another"
            )
        size: int = said["size"]
        if size < 1:
            raise Refused("the client has no examples to train on")
        if size > MOST_ROWS:
            raise Refused(f"the client has {size!s:.40} examples, and {MOST_ROWS:,} are the most that can be taken")
        return size
