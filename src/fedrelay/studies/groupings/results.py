"""What the laboratory found, to look at: a table, a page with the label mix of every group, and files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from fedrelay.data.picture import fewer_classes
from fedrelay.report.figures import Figure, Spec
from fedrelay.report.sheet import Column, sheet
from fedrelay.runs.measures import Box
from fedrelay.studies.claims import GROUPINGS, claim
from fedrelay.studies.groupings.apart import Apart
from fedrelay.studies.groupings.pictures import boxes, heat_maps
from fedrelay.studies.groupings.study import Counts, Findings, Made, Pretrained
from fedrelay.studies.markdown import markdown_table
from fedrelay.system import files

MOST_GROUPS = 100
MOST_CLASSES = 100
DIGITS = 4
"""Of a similarity in a picture."""
SCALE = [[0, "#ffffff"], [0.25, "#fde0a0"], [0.5, "#f48e52"], [0.75, "#c43354"], [1, "#540f5c"]]
COLUMNS: tuple[tuple[str, str, Callable[[Made], Any], str], ...] = (
    ("groups", "{:.4g}", lambda made: made.number, ""),
    ("balance ratio", "{:.3f}", lambda made: made.balance, "most"),
    ("covered classes", "{:.3f}", lambda made: made.covered, "most"),
    ("1000 CPD", "{:.3g}", lambda made: None if made.apart is None else 1000 * made.apart, "least"),
    ("1000 CPD, mean", "{:.3g}", lambda made: None if made.apart_mean is None else 1000 * made.apart_mean, "least"),
    ("seconds", "{:.2g}", lambda made: made.seconds, ""),
)
"""Title, form, value, and what is best."""


def table(findings: Findings) -> Table:
    """For the terminal, where there is no room for the mean CPD and the seconds."""
    result = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("trait", "grouper", "distance"):
        result.add_column(title, no_wrap=True)
    for title, *_ in COLUMNS[:-2]:
        result.add_column(title.replace(" ", "\n"), justify="right", no_wrap=True)
    for made in findings.made:
        result.add_row(*(Text(cell) for cell in cells(made)[:-2]))
    return result


def cells(made: Made) -> list[str]:
    """One line of the table."""
    values = [(form, value(made)) for _, form, value, _ in COLUMNS]
    words = [made.trait or "–", made.grouper, made.distance or "–"]
    return [*words, *("–" if value is None else form.format(value) for form, value in values)]


def markdown(findings: Findings, title: str) -> str:
    """For documents."""
    heads = ["trait", "grouper", "distance", *(title for title, *_ in COLUMNS)]
    text = markdown_table(heads, [cells(made) for made in findings.made], words=3)
    return f"# {title}\n\n{text}\n\n" + "".join(f"- {note}\n" for note in notes(findings))


def notes(findings: Findings) -> list[str]:
    """What the table does not say."""
    sizes, box = findings.sizes, findings.clients_box
    found = [
        f"{findings.source}: {len(sizes)} clients with {min(sizes)} to {max(sizes)} examples"
        + ("" if box is None else f"; 1000 CPD of two clients: {1000 * box.median:.3g}, mean {1000 * box.mean:.3g}"),
        "CPD is the distance of the class mixes of two groups: the median over all pairs, and the mean "
        "(FedGSP 2022, Eq. 14)",
    ]
    found += [f"describing all clients by {name} took {seconds:.1f} s" for name, seconds in findings.described.items()]
    found += [
        f"after {epochs(one)} alone the similarity matrix has norm {one.norm:.4g}, and {one.components:.1%} of "
        "the principal components hold 90 % of the classifiers' variance"
        for one in findings.pretrained
    ]
    for name, missing in findings.missing.items():
        found += [f"{name}: client {client} was grouped at random: {reason}" for client, reason in missing]
    return found


def fingerprint(tables: Mapping[str, Any]) -> str:
    """What was asked for, so that the same may be asked for again."""
    return hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()


def claim_for(tables: Mapping[str, Any], out: Path, *, force: bool) -> None:
    """Refuse a folder with results of other tables than these, unless by `force`."""
    claim(out, GROUPINGS, lambda found: bool(found["work"] == fingerprint(tables)), force=force)


def write(findings: Findings, out: Path, title: str, *, work: str = "") -> None:
    """results.json, results.md and report.html in this folder, each whole or not at all; `work` is a fingerprint."""
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "work": work,
        "source": findings.source,
        "clients": len(findings.sizes),
        "clients_cpd": findings.clients_apart,
        "clients_cpd_box": None if findings.clients_box is None else asdict(findings.clients_box),
        "groupings": [plain(made, findings.class_names) for made in findings.made],
        "distances": [one.as_json() for one in findings.between],
        "pretraining": [as_json(one) for one in findings.pretrained],
        "described_seconds": dict(findings.described),
        "undescribed": {name: [list(one) for one in missing] for name, missing in findings.missing.items()},
    }
    files.write(out / "results.json", (json.dumps(content, indent=1) + "\n").encode())
    files.write(out / "results.md", markdown(findings, title).encode())
    files.write(out / "report.html", page(findings, title).encode(errors="replace"))


def plain(made: Made, class_names: Sequence[str]) -> dict[str, Any]:
    """A grouping as JSON says it, with the examples of every class in its groups, as many of both as are drawn."""
    counts, classes = fewer_classes(made.counts, class_names, MOST_CLASSES)
    return {
        "trait": made.trait or None,
        "grouper": made.grouper,
        "distance": made.distance or None,
        "number": made.number,
        "balance_ratio": made.balance,
        "covered_classes": made.covered,
        "cpd": made.apart,
        "cpd_mean": made.apart_mean,
        "cpd_box": None if made.box is None else asdict(made.box),
        "seconds": made.seconds,
        "groups": list(made.groups),
        "classes": classes,
        "counts": counts[:MOST_GROUPS].tolist(),
    }


def as_json(one: Pretrained) -> dict[str, Any]:
    """What was found after some epochs, with the matrix as it is drawn."""
    return {**asdict(one), "similarity": one.similarity.round(DIGITS).tolist()}


def from_json(found: Mapping[str, Any]) -> Pretrained:
    """The same, back from results.json."""
    return Pretrained(**{**found, "similarity": np.asarray(found["similarity"], dtype=np.float64)})


def drawn(found: Mapping[str, Any], *, most: int = MOST_GROUPS) -> list[Figure]:
    """The pictures of results.json, with `most` groups of every grouping; older ones lack what they are drawn from."""
    alone = [from_json(one) for one in found["pretraining"] if "similarity" in one]
    groupings = [one for one in found["groupings"] if one.get("counts")]
    spread = [("clients", found.get("clients_cpd_box")), *((name_of(one), one.get("cpd_box")) for one in groupings)]
    return [
        *boxes([(name, None if box is None else Box(**box)) for name, box in spread]),
        *heat_maps([Apart.from_json(one) for one in found.get("distances", ())]),
        *([pretraining(alone)] if len(alone) > 1 else []),
        *map(alike, alone),
        *(mix_again(number, one, most) for number, one in enumerate(groupings)),
    ]


def mix_again(number: int, found: Mapping[str, Any], most: int) -> Figure:
    """What is in the groups of a grouping of results.json."""
    counts = np.asarray(found["counts"], dtype=np.int64)
    return mix(number, name_of(found), counts, found["classes"], most=most, of=len(found["groups"]))


def name_of(found: Mapping[str, Any]) -> str:
    """What a grouping of results.json is called."""
    return " · ".join(filter(None, (found["trait"], found["grouper"], found["distance"])))


def page(findings: Findings, title: str) -> str:
    """The whole page."""
    names = [" · ".join(filter(None, (made.trait, made.grouper, made.distance))) for made in findings.made]
    columns = [
        Column(title, tuple("–" if (v := value(made)) is None else form.format(v) for made in findings.made), best)
        for title, form, value, wish in COLUMNS
        for best in [leading([value(made) for made in findings.made], wish)]
    ]
    spread = [
        ("clients", findings.clients_box),
        *((name, made.box) for name, made in zip(names, findings.made, strict=True)),
    ]
    figures = boxes(spread) + heat_maps(findings.between)
    figures += [pretraining(findings.pretrained)] if len(findings.pretrained) > 1 else []
    figures += [alike(one) for one in findings.pretrained]
    figures += [
        mix(number, name, made.counts, findings.class_names)
        for number, (name, made) in enumerate(zip(names, findings.made, strict=True))
    ]
    return sheet(title, headline(findings, names), notes(findings), names, columns, figures, what="Grouping")


def headline(findings: Findings, names: Sequence[str]) -> str:
    most = max(made.balance for made in findings.made)
    best = [name for name, made in zip(names, findings.made, strict=True) if made.balance == most]
    random = next((made for made in findings.made if not made.trait), None)
    others = f" and {len(best) - 1} more" if len(best) > 1 else ""
    said = f"The most even groups: {best[0]}{others}, with a balance ratio of {most:.3f}"
    return said + ("" if random is None else f" (random groups: {random.balance:.3f})")


def leading(values: Sequence[float | None], wish: str) -> frozenset[int]:
    """The places of the best value; nobody leads where nothing is wished, or all are equal."""
    known = [value for value in values if value is not None]
    if not wish or len(set(known)) < 2:
        return frozenset()
    best = max(known) if wish == "most" else min(known)
    return frozenset(number for number, value in enumerate(values) if value == best)


def mix(
    number: int,
    name: str,
    counts: Counts,
    class_names: Sequence[str],
    *,
    most: int = MOST_GROUPS,
    of: int | None = None,
) -> Figure:
    """The label mix of groups (FedSeq 2022, Figs. 6-8): the share of each class in `most` groups at most, which are the
    first of so many."""
    counts, classes = fewer_classes(counts, class_names, MOST_CLASSES)
    of, shown = of or len(counts), counts[:most]
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    first = f", the first {len(shown)} of them" if of > len(shown) else ""
    caption = f"The share of every class in each of {of} groups{first}; an even colour is an even mix."
    trace = {
        "type": "heatmap",
        "z": shares.round(4).tolist(),
        "x": list(classes),
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": min(1, 3 / len(classes)),  # the same for all groupings, so that they can be compared
        "hovertemplate": "group %{y}, class %{x}: %{z:.1%}<extra></extra>",
        "colorbar": {"thickness": 10, "tickformat": ".0%"},
    }
    layout = axes("Class", "Group", 260 + 3 * len(shown))
    layout["xaxis"]["type"] = "category"
    return Figure(f"mix{number}", name, caption, {"data": [trace], "layout": layout})


def alike(one: Pretrained) -> Figure:
    """The similarity matrix after some epochs (FedSeq 2022, Fig. 3a)."""
    trace = {
        "type": "heatmap",
        "z": one.similarity.round(DIGITS).tolist(),
        "colorscale": "Viridis",
        "hovertemplate": "%{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10},
    }
    title = f"Models after {epochs(one)} alone"
    caption = "The cosine of every two clients' models, sorted by the clients' commonest class."
    return Figure(f"alike{one.epochs}", title, caption, {"data": [trace], "layout": axes("Client", "Client", 380)})


def pretraining(found: Sequence[Pretrained]) -> Figure:
    """The norm of the similarity matrix over the epochs (FedSeq 2022, Fig. 3b) and the share of components (Fig. 5)."""
    along = [one.epochs for one in found]
    traces = [
        {"type": "scatter", "name": "norm of the similarities", "x": along, "line": {"color": "#2f6fde"}},
        {"type": "scatter", "name": "share of components", "x": along, "line": {"color": "#d9622b", "dash": "dash"}},
    ]
    largest = max(one.norm for one in found)
    traces[0]["y"] = [one.norm / largest for one in found]
    traces[1]["y"] = [one.components for one in found]
    layout = axes("Epochs alone", "", 340) | {"showlegend": True, "legend": {"orientation": "h"}}
    caption = (
        "The norm of the matrix of similarities, as a share of the largest one, falls while models become unlike; "
        "and the share of the principal components that hold 90 % of the classifiers' variance."
    )
    return Figure(
        "pretraining",
        "How long must clients train to be told apart?",
        caption,
        {"data": traces, "layout": layout},
        wide=True,
    )


def epochs(one: Pretrained) -> str:
    return f"{one.epochs} epoch{'s' if one.epochs > 1 else ''}"


def axes(x: str, y: str, height: int) -> Spec:
    return {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 52},
        "xaxis": {"title": {"text": x}, "showgrid": False, "zeroline": False},
        "yaxis": {"title": {"text": y}, "showgrid": False, "zeroline": False, "automargin": True},
    }
