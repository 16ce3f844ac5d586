"""All attacks for a while: every kind has its share of the time, two processes share the trials.

    python attack/run.py [--minutes 60] [--only KIND …] [--resume] [--slice]

Everything is written into a new folder below the system's temporary one (or --out, which must not exist) and removed
afterwards, unless something broke. Nothing but this machine is talked to. The tallies go to attack/results.json, and
the table into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from typing import IO, Any, NoReturn

import page
import tally
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from share import Kind, Share
from tally import Tally
from warm import ROOT, prepare, warm

RESULTS, PAGE = ROOT / "attack" / "results.json", ROOT / "docs" / "reliability.md"
SEED = 14
SAVED = 20.0
"""Seconds between one time that tallies are written and the next."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Attack fedrelay, and say what held.")
    made.add_argument("--minutes", type=float, default=60, help="how long, about (default: 60)")
    made.add_argument(
        "--only", nargs="+", default=[], metavar="KIND", help="only these kinds; the others keep their rows"
    )
    made.add_argument("--seed", type=int, default=SEED)
    made.add_argument("--out", type=Path, help="a new folder for what is written (default: a temporary one)")
    made.add_argument("--resume", action="store_true", help="go on from the tallies of the same seed")
    made.add_argument("--slice", action="store_true", help="few trials of each kind, one process, no fuzzer, no page")
    made.add_argument("--results", type=Path, default=RESULTS, help="where the tallies go")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not sys.platform.startswith("linux"):
        raise SystemExit("the attacks look into /proc: they run on Linux only")
    out = new_folder(options.out)
    lanes = 1 if options.slice else 2
    before = tally.load(options.results, options.seed, lanes) if options.resume or options.only else {}
    if not options.resume:
        before = {name: row for name, row in before.items() if name not in options.only}
    watch = Watch(options, out, lanes, before)
    watch.start()
    broke = watch.follow()
    if broke:
        print(f"{broke} trials broke; what they left is in {out}", file=sys.stderr)
    else:
        rmtree(out)
    return 1 if broke else 0


def new_folder(wanted: Path | None) -> Path:
    """One that nobody else has anything in."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="fedrelay-attack-"))
    try:
        wanted.mkdir(parents=True)
    except FileExistsError:
        raise SystemExit(f"{wanted} exists: name a folder that does not, what is there is not touched") from None
    return wanted.resolve()


class Watch:
    """The parent: it imports nothing that is attacked, starts the processes that do, and counts."""

    def __init__(self, options: argparse.Namespace, out: Path, lanes: int, before: Mapping[str, Tally]) -> None:
        self.options, self.out, self.lanes, self.before = options, out, lanes, dict(before)
        self.tallies: dict[str, Tally] = dict(before)
        self.whats: dict[str, str] = {}
        self.selector = selectors.DefaultSelector()
        self.children: list[int] = []
        self.began = time.monotonic()
        self.facts = {**tally.machine(), "seed": options.seed, "lanes": lanes, "minutes": 0.0, "guided": False}

    def start(self) -> None:
        for lane in range(self.lanes):
            ours, theirs = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(ours)
                lane_main(self.options, self.out, (lane, self.lanes), self.before, os.fdopen(theirs, "w", buffering=1))
            os.close(theirs)
            self.children.append(child)
            self.selector.register(os.fdopen(ours), selectors.EVENT_READ, lane)

    def follow(self) -> int:
        """Count until all processes have ended; how many trials broke."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        saved, failed = time.monotonic(), 0
        try:
            with Progress(*columns, TextColumn("{task.fields[left]}")) as bars:
                self.bars = bars
                self.rows: dict[str, Any] = {}
                self.whole = bars.add_task("all kinds", total=None, left="")
                while self.selector.get_map():
                    for key, _ in self.selector.select(timeout=1.0):
                        self.hear(key)
                    if time.monotonic() > saved + SAVED:
                        self.save()
                        saved = time.monotonic()
                    self.bars.update(self.whole, left=self.left())
        except KeyboardInterrupt:
            print("stopped; --resume goes on with these tallies", file=sys.stderr)
            failed = 1
        finally:
            failed += self.end()
            self.save()
        if not self.options.slice:
            page.write(PAGE, self.whats, self.tallies, self.facts)
        return failed + sum(row.broke for row in self.tallies.values())

    def left(self) -> str:
        left = self.options.minutes * 60 - (time.monotonic() - self.began)
        return f"at most {max(left, 0) / 60:.0f} min left"

    def hear(self, key: selectors.SelectorKey) -> None:
        """One line of a process."""
        stream: IO[str] = key.fileobj  # type: ignore[assignment]
        line = stream.readline()
        if not line:
            self.selector.unregister(stream)
            stream.close()
            return
        told, lane = json.loads(line), key.data
        if "whats" in told:
            self.whats, self.facts["guided"] = told["whats"], told["guided"]
            return
        name = told["kind"]
        row = self.tallies.setdefault(name, Tally([0] * self.lanes))
        if "begins" in told:
            row.wanted, row.out_of_time = told["wanted"], False
            if name not in self.rows:
                self.rows[name] = self.bars.add_task(name, total=row.wanted, completed=row.tried, left="")
        elif "ends" in told:
            row.seconds += told["seconds"]
            row.out_of_time |= told["out_of_time"]
            self.bars.update(self.rows[name], total=row.tried if not row.out_of_time else row.wanted)
        else:
            row.add(lane, told)
            self.bars.update(
                self.rows[name], completed=row.tried, total=row.wanted, left=f"{row.broke} broke" if row.broke else ""
            )

    def save(self) -> None:
        # Of all kinds, also those that an earlier part of the same hour has made.
        self.facts["minutes"] = round(sum(row.seconds for row in self.tallies.values()) / self.lanes / 60, 1)
        tally.save(self.options.results, self.tallies, self.facts)

    def end(self) -> int:
        """End the processes with all they started; how many did not end well by themselves."""
        failed = 0
        for child in self.children:
            done, status = os.waitpid(child, os.WNOHANG if self.selector.get_map() else 0)
            if not done:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
            failed += bool(done and status)
        return failed


# --- one of the processes


def lane_main(
    options: argparse.Namespace, out: Path, place: tuple[int, int], before: Mapping[str, Tally], told: IO[str]
) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        own = out / f"lane-{place[0]}"
        own.mkdir()
        prepare(own)
        attack_all(options, own, place, before, told)
        code = 0
    except BaseException:
        (out / f"lane-{place[0]}.txt").write_text(traceback.format_exc())
        traceback.print_exc()
    finally:
        told.flush()
        os._exit(code)


def attack_all(
    options: argparse.Namespace, own: Path, place: tuple[int, int], before: Mapping[str, Tally], told: IO[str]
) -> None:
    """Kind after kind; time that one does not need is shared among the others."""
    end = time.monotonic() + options.minutes * 60
    import damage
    from kinds import KINDS

    lane, lanes = place
    tell(told, whats={kind.name: kind.what for kind in KINDS}, guided=damage.guided() and not options.slice)
    warm(own)
    mine = [kind for kind in KINDS if kind.split or lane == lanes - 1]
    mine = [kind for kind in mine if not options.only or kind.name in options.only]
    for number, kind in enumerate(mine):
        cost = {one.name: one.minutes / (lanes if one.split else 1) for one in mine[number:]}
        now = time.monotonic()
        deadline = end if options.slice else now + (end - now) * cost[kind.name] / sum(cost.values())
        make(kind, share_of(kind, options, own, place, before.get(kind.name), deadline), told)


def share_of(
    kind: Kind, options: argparse.Namespace, own: Path, place: tuple[int, int], row: Tally | None, deadline: float
) -> Share:
    lane, lanes = place if kind.split else (0, 1)
    folder = own / kind.name
    folder.mkdir()
    return Share(
        *(kind.name, folder, options.seed, kind.slice if options.slice else kind.wanted),
        lane=lane,
        lanes=lanes,
        done=0 if row is None else row.done[place[0]],
        deadline=deadline,
        guided=not options.slice,
    )


def make(kind: Kind, share: Share, told: IO[str]) -> None:
    """The trials of one kind until there are enough or time is out."""
    began, out_of_time, broke = time.monotonic(), False, False
    tell(told, kind=kind.name, begins=True, wanted=share.wanted)
    for verdict in kind.attack(share):
        tell(told, kind=kind.name, **asdict(verdict))
        broke |= bool(verdict.problem)
        if not share.left:
            out_of_time = True
            break
    if not broke:
        rmtree(share.folder, ignore_errors=True)
    tell(told, kind=kind.name, ends=True, seconds=time.monotonic() - began, out_of_time=out_of_time)


def tell(told: IO[str], **what: Any) -> None:
    told.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main())
