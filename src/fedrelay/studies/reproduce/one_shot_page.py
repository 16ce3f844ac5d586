"""The tables of docs/one-shot.md: what one pass sends, by formulas, and what the studies of it have found.

`python -m fedrelay.studies.reproduce.one_shot_page docs/one-shot.md` renews the formulas; with a folder of finished
studies after it (`runs`), also the results of those that are there. What is not there is left as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.runs.one_pass import PASSES
from fedrelay.studies.markdown import markdown_table
from fedrelay.studies.marks import filled
from fedrelay.studies.over_seeds import mean_and_deviation
from fedrelay.studies.reproduce import library

PAPER_MODEL, CNN = 46.2e6, 4 * 319_242
"""The size of a model in FedELMY's Fig. 5, and that of its CNN for CIFAR-10, in bytes."""
CLIENTS = 10
TABLE = "fedelmy/table7"
"""The table of the paper whose networks the studies have."""
PANELS = {"one_shot_cifar10": "CIFAR-10", "one_shot_pacs": "PACS", "one_shot_office": "Office-Caltech-10"}
"""The panel of that table for every study."""
ROWS = {"sequential": "FedSeq", "dense": "DENSE", "fedov": "FedOV", "metafed": "MetaFed", "fedelmy": "FedELMY"} | {
    "dfedavgm": "DFedAvgM",
    "dfedsam": "DFedSAM",
}
"""What the paper calls runs of the studies."""
PARTS = {"fedelmy, pool alone": "the pool alone", "fedelmy, pool and d1": "with d1", "fedelmy, pool and d2": "with d2"}


def printed(study: str) -> dict[str, float]:
    """Accuracy of the paper's CNN after 200 epochs, in percent, by run (FedELMY 2024, Table 7)."""
    (item,) = library.wanted(TABLE)
    rows = item.printed[PANELS[study]]
    values = {run: rows[row]["accuracy"].value for run, row in ROWS.items()}
    return {run: value for run, value in values.items() if value is not None}


def traffic() -> str:
    """What every method sends in one pass."""
    rows = [
        [
            f"`{name}`",
            one.words,
            one.formula,
            f"{one.megabytes(CLIENTS, PAPER_MODEL):.1f}",
            f"{one.megabytes(CLIENTS, CNN):.1f}",
            f"{one.total(CLIENTS)}{one.besides}",
        ]
        for name, one in PASSES.items()
    ]
    heads = ["method", "who sends", "models sent", "MB, models of 46.2 MB", "MB, the paper's CNN", "messages of a run"]
    return markdown_table(heads, rows, words=3)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def found(name: str, folder: Path) -> str | None:
    """The results of one study; None if it has not been run here."""
    path = folder / name / "results.json"
    if not path.is_file():
        return None
    runs = json.loads(path.read_text(encoding="utf-8"))
    values = {run["name"]: [one["mean"] for one in run["summaries"] if one["mean"] is not None] for run in runs}
    rows, theirs = [], printed(name)
    for run in runs:
        mine, summaries = values[run["name"]], run["summaries"]
        paper = theirs.get(run["name"])
        rows.append(
            [
                f"`{run['name']}`",
                mean_and_deviation(mine, percent) if mine else "failed",
                "–" if paper is None else f"{paper:.2f} %",
                of(summaries, "messages", 1, "{:.0f}"),
                of(summaries, "bytes", 1e6, "{:.1f}"),
                "–" if not summaries else f"{statistics.fmean(one['seconds'] for one in summaries):.0f}",
            ]
        )
    table = markdown_table(["run", "accuracy", "paper, Table 7", "messages", "MB", "seconds"], rows, words=1)
    return "\n\n".join([table, *said(name, values), *by_client(folder / name / "results.md")])


def of(summaries: Sequence[Mapping[str, Any]], what: str, unit: float, form: str) -> str:
    """The mean of what the seeds have sent."""
    return form.format(statistics.fmean(one[what]["total"] for one in summaries) / unit) if summaries else "–"


def said(name: str, values: Mapping[str, Sequence[float]]) -> list[str]:
    """The order of the methods, here and in the paper, and what the parts of FedELMY add: reckoned from the table."""
    means = {run: statistics.fmean(mine) for run, mine in values.items() if mine}
    theirs = printed(name)
    both = [run for run in theirs if run in means]
    here = sorted(both, key=lambda run: -means[run])
    paper = sorted(both, key=lambda run: -theirs[run])
    other = "The paper's is the same." if here == paper else f"In the paper: {' > '.join(paper)}."
    found = [f"Order here: {' > '.join(here)}. {other}"]
    if {"sequential", "fedelmy", *PARTS} <= set(means):
        steps = {**{words: means[run] for run, words in PARTS.items()}, "with both": means["fedelmy"]}
        gains = ", ".join(f"{words} {100 * (mean - means['sequential']):+.1f}" for words, mean in steps.items())
        found.append(f"FedELMY against `sequential`, in points: {gains}.")
    return [" ".join(found)] if both else []


def by_client(path: Path) -> list[str]:
    """The table of domains that the study has written, if it has one."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    start = text.find("Accuracy of every client:")
    return [] if start < 0 else [text[start:].strip()]


def renewed(text: str, folder: Path | None = None) -> str:
    """The document filled anew, as far as there is something to fill in."""
    results = {name: None if folder is None else found(name, folder) for name in PANELS}
    return filled(text, {"traffic": traffic()} | {name: made for name, made in results.items() if made is not None})


if __name__ == "__main__":
    document = Path(sys.argv[1])
    studies = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    document.write_text(renewed(document.read_text(encoding="utf-8"), studies), encoding="utf-8")
