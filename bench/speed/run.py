"""Everything side by side: every contender in a process of its own, asked in turn, medians of several repetitions.

    python bench/speed/run.py --peers .peers/bin/python [--only A D] [--repetitions 5] [--seconds 2] [--noisy]

Writes bench/results.json, and the table and chart of docs/performance.md; but only on a machine that is quiet. With
--noisy it measures on any, and writes bench/results-noisy.json alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import machine
import page
import quiet
from gate import MARK
from workloads import TRIAL, WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
CORES = machine.cores()
DENSE = ("A", "D")
TORCH = ("H", "I")
"""Those for which what torch's operators give alone is measured, too."""
EXTRA = {"F": "hops.py", "G": "many.py"}
"""Measurements of fedrelay alone."""
PATIENCE = 180
"""Seconds until a contender that does not answer is left out."""

LEAST, ENOUGH = 3, 60
"""After so many repetitions, a workload that has taken so many seconds is done."""


@dataclass
class Contender:
    """A process that runs rounds when it is told to."""

    name: str
    command: list[str]
    facts: dict[str, Any] = field(default_factory=dict)
    rounds: int = 1
    speeds: list[float] = field(default_factory=list)
    apart: bool = False
    """Whether it keeps the machine busy while it waits, so that it must not run beside others."""
    _process: subprocess.Popen[str] | None = None

    @property
    def workload(self) -> str:
        return self.command[2]

    def trial(self) -> Contender:
        """The same for the short workload."""
        return Contender(self.name, [*self.command[:2], self.workload + TRIAL, *self.command[3:]], apart=self.apart)

    def amount(self, work: Workload) -> float:
        """What it does in a round: examples, or operations if it says so."""
        return float(self.facts.get("flops") or self.facts.get("examples") or work.examples)

    def measure(self, work: Workload) -> None:
        """Once more: as many rounds as were found to be enough."""
        self.speeds.append(self.rounds * self.amount(work) / self.ask(self.rounds))

    def start(self) -> None:
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=HERE,
        )
        self.facts = self._answer()

    def ask(self, rounds: int) -> float:
        """Seconds that so many rounds take."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rounds}\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        watch = threading.Timer(PATIENCE, self._process.kill)
        watch.start()
        try:
            for line in self._process.stdout:
                if line.startswith(MARK):
                    answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                    return answer
        finally:
            watch.cancel()
        raise RuntimeError(f"{' '.join(self.command)} ended or took too long: run it by hand to see why")

    def end(self) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def contenders(workload: str, peers: str) -> list[list[Contender]]:
    """Those of a workload, each with the settings among which the fastest is taken."""

    def of(name: str, python: str, module: str, *settings: str) -> list[Contender]:
        script = str(HERE / "contenders" / f"{module}.py")
        return [Contender(name, [python, script, workload, *setting.split()]) for setting in settings]

    threads = [str(count) for count in sorted({1, CORES})]
    found = [
        of("fedrelay", sys.executable, "ours", "1 auto"),
        of("plain PyTorch", peers, "plain", *threads),
        of("pfl-research", peers, "pfl_research", *(f"{count} 1" for count in threads), f"1 {CORES}"),
        of("Flower", peers, "flower", *threads),
        of("fluke", peers, "fluke_averaging", *threads),
        of("bound", peers, "bound", threads[-1]),
    ]
    if workload in DENSE:
        found.insert(1, of("fedrelay inline", sys.executable, "ours", "1 inline"))
        found.insert(-1, of("FedJAX", peers, "fedjax_averaging", "1"))
        found.append(of("NVFlare", peers, "nvflare_simulator", "1"))
        found[-1][0].apart = True  # its sites ask for work all the time
    if workload in TORCH:
        layouts = ("plain", "last") if len(WORKLOADS[workload].shape) == 3 else ("plain",)
        both = (f"{CORES} 1 plain", *(f"1 {CORES} {layout}" for layout in layouts))
        found.insert(-1, of("operators alone", peers, "operators", *both))
    return found


def fastest(settings: list[Contender], seconds: float) -> Contender | None:
    """A contender with the setting that is quickest, started; for long workloads tried out on a short one."""
    name = settings[0].workload
    if len(settings) == 1 or name + TRIAL not in WORKLOADS:
        return started(settings, seconds)
    best = started([one.trial() for one in settings], seconds)
    if best is None:
        return None
    best.end()
    chosen = next(one for one in settings if one.command[3:] == best.command[3:])
    longer = WORKLOADS[name].examples / WORKLOADS[name + TRIAL].examples
    return chosen if begun(chosen, seconds, best.facts["each"] * longer) else None


def started(settings: list[Contender], seconds: float) -> Contender | None:
    """Start a contender with each setting, and keep the one that is quickest."""
    best: Contender | None = None
    for one in settings:
        if not begun(one, seconds):
            continue
        if best is None or per_example(one) < per_example(best):
            best, worse = one, best
        else:
            worse = one
        if worse is not None:
            worse.end()
    return best


def begun(one: Contender, seconds: float, each: float | None = None) -> bool:
    """Start a contender and see what a round takes, if that is not known; False if it cannot, which is said."""
    try:
        one.start()  # with a first round
        if each is None:
            each = one.ask(1)
            if each < seconds / 3:  # too quick to tell
                count = max(int(seconds / 3 / each), 1)
                each = one.ask(count) / count
    except (RuntimeError, OSError) as error:
        print(f"  {one.name} is left out: {error}", file=sys.stderr)
        one.end()
        return False
    one.rounds = max(round(seconds / each), 1)
    one.facts["each"] = each
    return True


def per_example(one: Contender) -> float:
    """What a round costs, by what is done in it where settings differ in that."""
    return float(one.facts["each"]) / float(one.facts.get("examples", 1))


def in_turn(running: list[Contender], work: Workload, repetitions: int) -> int:
    """Measure these side by side and end them; how many repetitions there was time for."""
    began = time.perf_counter()
    done = 0
    while done < repetitions and (done < LEAST or time.perf_counter() - began < ENOUGH):
        for one in running[done % len(running) :] + running[: done % len(running)]:
            one.measure(work)
        done += 1
    for one in running:
        one.end()
    return done


def measure(work: Workload, peers: str, repetitions: int, seconds: float) -> dict[str, Any]:
    """All contenders of a workload: in turn, and those that must be alone after the others."""
    print(f"{work.name}: {work.about}", file=sys.stderr)
    wanted = contenders(work.name, peers)
    chosen = [fastest(settings, seconds) for settings in wanted if not settings[0].apart]
    running = [one for one in chosen if one is not None]
    done = in_turn(running, work, repetitions)
    for settings in wanted:
        if settings[0].apart and (one := fastest(settings, seconds)) is not None:
            try:
                for _ in range(done):
                    one.measure(work)
                running.append(one)
            except (RuntimeError, OSError) as error:  # what the others have shown is kept
                print(f"  {one.name} is left out: {error}", file=sys.stderr)
            one.end()
    rows = {one.name: {"speeds": one.speeds, **one.facts} for one in running}
    if "bound" in rows:
        flops = rows["bound"]["speeds"]
        rows["bound"] |= {"gflops": statistics.median(flops) / 1e9, "speeds": [speed / work.flops for speed in flops]}
    ours = rows["fedrelay"]["speeds"]
    for name, row in rows.items():
        row["median"] = statistics.median(row["speeds"])
        # Within a repetition, so that what slows the machine for a while slows both.
        row["ratio"] = statistics.median(a / b for a, b in zip(ours, row["speeds"], strict=True))
        print(f"  {name:16} {row['median']:12,.0f} examples/s  {row['ratio']:6.2f}×  {row['setting']}", file=sys.stderr)
    return {"about": work.about, "rows": rows}


def extra(script: str, *arguments: str) -> Any:
    """Another measurement, in a process of its own."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": paths}
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", required=True, help="the Python that has the peers")
    everything = [*(name for name in WORKLOADS if not name.endswith(TRIAL)), *EXTRA]
    parser.add_argument("--only", nargs="*", default=everything, choices=everything)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement, at least one round")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results.json")
    parser.add_argument("--noisy", action="store_true", help="measure on a busy machine, too; publish nothing")
    options = parser.parse_args()
    peers = str(Path(options.peers).absolute())  # not resolved: a link out of an environment leads out of it
    out = options.out.with_stem(options.out.stem + "-noisy") if options.noisy else options.out
    began = time.time()
    results: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {}
    results["machine"] = machine.describe()
    for name in options.only:
        # Before every workload: of the load, all but the first would see that of the benchmark itself.
        found, wrong = quiet.wait(load=name == options.only[0], patience=0 if options.noisy else quiet.WAIT)
        if wrong and not options.noisy:
            print(quiet.refusal(wrong), file=sys.stderr)
            return 1
        start = time.time()
        if name in WORKLOADS:
            results[name] = measure(WORKLOADS[name], peers, options.repetitions, options.seconds)
        else:
            results[name] = extra(EXTRA[name])
        results.setdefault("minutes", {})[name] = round((time.time() - start) / 60, 1)
        results.setdefault("quiet", {})[name] = asdict(found)
        out.write_text(json.dumps(results, indent=1) + "\n")
        if not options.noisy:
            page.write(results, HERE.parents[1] / "docs")
    published = "" if options.noisy else " and docs/performance.md"
    print(f"{(time.time() - began) / 60:.1f} minutes; wrote {out}{published}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
