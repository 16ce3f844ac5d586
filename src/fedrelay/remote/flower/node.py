"""Who a Flower node is: its name, its data and its folder, as its own --node-config says, never by Flower's numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fedrelay.errors import BadInput

EXPERIMENT = "experiment"
PARTITION = "partition-id"
KEYS = ("name", "data", "home", "policy", "data-dir", "keys")
Values = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Node:
    """A client on a Flower federation.

    Args:
        name: what it is called; its number, and so its random numbers, follow from it.
        home: where it keeps what it keeps between visits.
        data: what it brings, as for `fedrelay join --data`.
        policy: a file of what it refuses.
        data_dir: where data sets lie that experiments name.
        keys: a folder of its keys, by which it proves its name.
        id: Flower's number of the node, as long as its SuperNode lasts.
        simulated: whether many of them share this process.
    """

    name: str
    home: str
    data: str = EXPERIMENT
    policy: str = ""
    data_dir: str = ""
    keys: str = ""
    id: int = 0
    simulated: bool = False

    @property
    def text(self) -> str:
        """All of it, in a line."""
        return json.dumps(asdict(self), sort_keys=True)


def node_of(node_config: Values, run_config: Values, *, id: int = 0) -> Node:
    """The node of --node-config; a simulated one has only the number of its part, which is the place of its name."""
    texts = {key: str(node_config[key]) for key in KEYS if key in node_config}
    if "name" in texts:
        home = texts.get("home") or str(Path(f"fedrelay-{texts['name']}").absolute())
        return Node(
            texts["name"],
            home,
            data=texts.get("data", EXPERIMENT),
            policy=texts.get("policy", ""),
            data_dir=texts.get("data-dir", ""),
            keys=texts.get("keys", ""),
            id=id,
        )
    names, number = names_in(run_config), node_config.get(PARTITION)
    if not isinstance(number, int):
        raise BadInput(
            "who is this client? start its SuperNode with --node-config 'name=\"north\"' (and data=…, home=…, policy=…)"
        )
    if number >= len(names):
        raise BadInput(
            f"Flower simulates more nodes than the {len(names)} clients that the app names: --federation-config "
            f"num-supernodes={len(names)}"
        )
    out = Path(str(run_config.get("out", ""))).absolute()
    beside = out.with_name(f"{out.name}-clients") / names[number]
    return Node(names[number], str(beside), data_dir=str(run_config.get("data-dir", "")), simulated=True)


def names_in(run_config: Values) -> tuple[str, ...]:
    """Who takes part, in the order of their numbers."""
    listed = str(run_config.get("clients", "")).split(",")
    return tuple(sorted(name.strip() for name in listed if name.strip()))
