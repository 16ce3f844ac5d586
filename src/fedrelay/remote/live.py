"""A run with real clients as one watches it: who is there and at work, and where every baton is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedrelay.engines.remote import Remote
from fedrelay.remote.status import status_of

MOST_CLIENTS, MOST_CHAINS, MOST_HOPS = 16, 8, 12
"""What fits on a screen."""
STYLES = {"at work": "green", "there": "", "late": "yellow", "lost": "red", "not yet": "dim"}


class LiveTable:
    """Looks at the engine whenever it is drawn."""

    def __init__(self, engine: Remote) -> None:
        self._engine = engine
        self._last: RenderableType = Text()

    def __rich__(self) -> RenderableType:
        try:
            status = status_of(self._engine)
            self._last = Group(clients_of(status["clients"]), chains_of(status["chains"]))
        except RuntimeError:  # the engine has changed something meanwhile: it is drawn again in a moment
            pass
        return self._last


def clients_of(clients: Sequence[Mapping[str, Any]]) -> Table:
    """One row a client; of many, those at work first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", caption_justify="left")
    table.add_column("client", overflow="fold")
    table.add_column("is")
    for title in ("last seen", "visits", "median s"):
        table.add_column(title, justify="right")
    order = list(STYLES)
    some = sorted(clients, key=lambda one: order.index(one["state"]))[:MOST_CLIENTS]
    for one in sorted(some, key=lambda one: one["client"]):
        usual = "–" if one["median_seconds"] is None else f"{one['median_seconds']:.2f}"
        state = Text(one["state"], style=STYLES[one["state"]])
        table.add_row(Text(one["name"]), state, ago(one["last_seen"]), str(one["visits"]), usual)
    if len(clients) > len(some):
        table.caption = f"and {len(clients) - len(some)} more"
    return table


def chains_of(chains: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line a chain: who has had its baton, who has it, and who is to come."""
    lines = [line_of(chain) for chain in chains[:MOST_CHAINS]]
    more = len(chains) - len(lines)
    return Group(*lines, *([Text(f"and {more} more chains", style="dim")] if more > 0 else []))


def line_of(chain: Mapping[str, Any]) -> Text:
    clients, at = chain["clients"], chain["hop"]
    text = Text(f"chain {chain['chain']} ({at} of {len(clients)}): ")
    first = max(0, min(at - MOST_HOPS // 2, len(clients) - MOST_HOPS))
    shown = list(enumerate(clients))[first : first + MOST_HOPS]
    for hop, name in shown:
        text.append(" → " if hop > first else "… → " if first else "")
        text.append(name, style="dim" if hop < at else "bold green" if hop == at else "")
    return text.append(" → …" if first + MOST_HOPS < len(clients) else "")


def ago(seconds: float | None) -> str:
    """How long ago, in a few characters."""
    if seconds is None:
        return "never"
    return "now" if seconds < 1 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
