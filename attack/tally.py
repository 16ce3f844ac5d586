"""What has come of the attacks so far: kept in a file, so that an attack that was stopped can go on."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SHOWN = 12
"""Problems of a kind that are written down in full; all are counted."""
PACKAGES = ("fedrelay", "torch", "numpy", "h5py", "pillow", "pyarrow", "pydicom", "scipy", "atheris")


@dataclass
class Tally:
    """A row: how many trials were made by each process, and what became of them."""

    done: list[int]
    broke: int = 0
    seconds: float = 0.0
    """Of one core."""
    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    wanted: int = 0
    out_of_time: bool = False

    @property
    def tried(self) -> int:
        return sum(self.done)

    @property
    def held(self) -> int:
        return self.tried - self.broke

    def add(self, lane: int, verdict: dict[str, Any]) -> None:
        self.done[lane] += verdict["trials"]
        self.figures |= verdict["figures"] or {}
        self.wanted = min(self.wanted, verdict["of"] or self.wanted)
        if verdict["problem"]:
            self.broke += verdict["trials"]
            if len(self.problems) < SHOWN:
                self.problems.append(f"{verdict['label']}: {verdict['problem']}"[:600])


def load(path: Path, seed: int, lanes: int) -> dict[str, Tally]:
    """The tallies of before, if they are of the same seed and as many processes."""
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if (found["seed"], found["lanes"]) != (seed, lanes):
        raise SystemExit(f"{path} has tallies of seed {found['seed']} and {found['lanes']} processes: not taken up")
    fields = Tally.__dataclass_fields__
    return {name: Tally(**{key: row[key] for key in fields}) for name, row in found["kinds"].items()}


def save(path: Path, tallies: dict[str, Tally], facts: dict[str, Any]) -> None:
    rows = {name: {**asdict(row), "tried": row.tried, "held": row.held} for name, row in tallies.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps({**facts, "kinds": rows}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def machine() -> dict[str, Any]:
    """Where this was."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": processor or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := version_of(name))},
        "date": time.strftime("%Y-%m-%d"),
    }


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
