"""The page of inversion: examples that were trained on, and what those around the visit make of it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedrelay.report.figures import Figure, shortened
from fedrelay.report.recovered import ACROSS, grid_of, spec_of
from fedrelay.report.sheet import Column, sheet
from fedrelay.runs.recovered import Bytes
from fedrelay.studies.inversion.measure import Inverted
from fedrelay.visits.attacks.recovery import to_bytes

READ = (
    "The error is the mean distance of what was made again from what was trained on, as a share of the length of the "
    "latter: 0 is the example itself. The guess is the mean test example, which takes no attack: what is farther away "
    "tells nothing. In a chain a client does not know the model that its predecessor got; both neighbours together do, "
    "and so does whoever follows the first of a chain, or relays. In FedAvg it is the server, unless it sees only sums "
    "(secure aggregation)."
)
TITLES = ("who has both models", "examples", "how", "noise", "epsilon", "error", "error of a guess")


def html(found: Mapping[str, Inverted]) -> str:
    """The page for these runs, by name."""
    rows, columns = table(found)
    return sheet("inversion", headline(found), [READ], rows, columns, pictures(found), what="Run", pictures_first=True)


def headline(found: Mapping[str, Inverted]) -> str:
    told = "; ".join(f"{name} {one.error:.2g}" for name, one in found.items())
    return f"Error of examples made again from one visit: {told}"


def table(found: Mapping[str, Inverted]) -> tuple[list[str], list[Column]]:
    """A row for every run."""
    cells = [cells_of(one) for one in found.values()]
    columns = [Column(title, tuple(row[place] for row in cells)) for place, title in enumerate(TITLES)]
    return list(found), columns


def cells_of(one: Inverted) -> tuple[str, ...]:
    epsilon = "–" if one.epsilon is None else f"{one.epsilon:.3g} at delta {one.delta:g}"
    noise = f"{one.noise:g}" if one.noise else "none"
    return one.holders, str(one.examples), one.how, noise, epsilon, f"{one.error:.2g}", f"{one.guess:.2g}"


def pictures(found: Mapping[str, Inverted]) -> list[Figure]:
    """What was trained on above what was made again, where they are images."""
    return [
        Figure(
            f"inverted-{place}",
            f"Client {one.client}: {shortened(name)}",
            f"Round {one.round}, hop {one.hop + 1}; by {one.how}; error {one.error:.2g}.",
            spec_of(grid_of([shown(part, one.truth) for part in (one.truth, one.made)]), ["trained on", "made again"]),
        )
        for place, (name, one) in enumerate(found.items())
        if one.truth.ndim == 4 and one.truth.shape[1] in (1, 3)
    ]


def shown(images: torch.Tensor, truth: torch.Tensor) -> Bytes:
    """In bytes: from the darkest to the brightest of what was trained on."""
    least, most = float(truth.min()), float(truth.max())
    found: Bytes = to_bytes((torch.nan_to_num(images[:ACROSS]) - least) / max(most - least, 1e-12)).numpy()
    return found
