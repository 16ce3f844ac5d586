"""Mutated configurations through the commands: they are built, or refused in a line that says why."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any, NoReturn

from child import LONGEST, UNEXPECTED, forked, last_line
from mutants import ODD, mutant
from share import Share, Verdict

BATCH = 250
"""So many configurations in one child."""
PATIENCE = 20
"""Seconds to build, or to refuse."""
ROOM = 4 << 30
"""Bytes that a child may take beside what it has."""
REALLY = 50
"""One in so many is not only built but run for a round."""


class Built(BaseException):
    """Everything was built, and a run would begin now."""


class Slow(BaseException):
    """It took too long."""


def mutated(share: Share) -> Iterator[Verdict]:
    numbers = list(share.numbers())
    while numbers:
        batch = numbers[:BATCH]
        told = share.folder / "told.jsonl"
        told.unlink(missing_ok=True)
        ended = forked(lambda batch=batch, told=told: inside(share, batch, told), room=ROOM)
        lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        held = sum(not problem for _, problem in lines)
        if held:
            yield Verdict("configurations", trials=held)
        for number, problem in lines:
            if problem:
                yield Verdict(f"configuration {number}", problem)
        if len(lines) < len(batch):
            number = batch[len(lines)]
            yield Verdict(f"configuration {number}", f"the process ended with {ended.code}: {last_line(ended.said)}")
        numbers = numbers[len(lines) + (len(lines) < len(batch)) :]


def inside(share: Share, batch: Sequence[int], told: Path) -> int:
    """One after another in this process, with everything random from the number."""
    only_build()
    signal.signal(signal.SIGALRM, too_slow)
    with told.open("a", buffering=1) as file:
        for number in batch:
            file.write(json.dumps([number, trial(share, number)]) + "\n")
            if not share.left:
                break
    return 0


def trial(share: Share, number: int) -> str:
    """What is wrong with what a command makes of mutant `number`; nothing if it holds."""
    rng = share.rng(number)
    folder = share.folder / f"mutant-{share.lane}"
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    Path("case.toml").write_bytes(mutant(rng))
    arguments = arguments_of(rng)
    # groups trains for its traits as long as it was asked to: it need not end soon, but must when it is told to
    working = "running" if arguments[0] == "groups" else "1" if number % REALLY == 0 else ""
    os.environ["ATTACK_ROUND"] = working
    try:
        return outcome(arguments)
    finally:
        signal.alarm(0)
        os.chdir(share.folder)
        rmtree(folder, ignore_errors=True)


def arguments_of(rng: random.Random) -> list[str]:
    """A command with the file, and sometimes with odd options."""
    verb = rng.choices(("run", "compare", "tune", "groups", "data"), (60, 18, 14, 5, 3))[0]
    if verb == "data":
        return ["data", "show", "case.toml"]
    options = ["--out", "out"]
    if verb == "tune":
        options += rng.choice((["--lr", "0.1,0.3"], ["--over", odd_setting(rng, ",1")], ["--lr", odd_text(rng)]))
        options += ["--seeds", odd_text(rng)] if rng.random() < 0.1 else []
    if rng.random() < 0.15:
        options += ["--set", odd_setting(rng)]
    return [verb, "case.toml", *options]


def odd_setting(rng: random.Random, more: str = "") -> str:
    key = rng.choice(("rounds", "seed", "local.lr", "data.clients", "algorithm.name", "model.hidden", "a.b.c", "", "."))
    return f"{key}{rng.choice(('=', '=', '=', ''))}{odd_text(rng)}{more}"


def odd_text(rng: random.Random) -> str:
    """As a shell could give it: no NUL."""
    text = rng.choice((str, repr))(rng.choice(ODD))
    return text.replace("\0", "").encode(errors="replace").decode()[:20000]


def outcome(arguments: Sequence[str]) -> str:
    from fedrelay.cli import main

    said, code = io.StringIO(), None
    signal.alarm(PATIENCE)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            code = main(list(arguments))
    except Built:
        return ""
    except SystemExit as error:
        code = error.code
    except Slow:
        return f"{shown(arguments)}: neither built nor refused after {PATIENCE} s"
    except BaseException as error:
        return f"{shown(arguments)}: {type(error).__name__}: {str(error)[:300]}"
    text = said.getvalue().strip()
    if any(word in text for word in UNEXPECTED):
        return f"{shown(arguments)}: {last_line(text)}"
    if code not in (0, 1, 2, 130):
        return f"{shown(arguments)}: exit code {code}: {last_line(text)}"
    if code and len(text) > LONGEST:
        return f"{shown(arguments)}: a refusal of {len(text)} characters: {text[:200]}"
    return ""


def shown(arguments: Sequence[str]) -> str:
    return " ".join(arguments)[:200]


def too_slow(signum: int, frame: Any) -> NoReturn:
    """While something is built this is too long; a round may take as long as was asked for, but can be stopped."""
    if os.environ["ATTACK_ROUND"] == "running":
        os.environ["ATTACK_ROUND"] = "stopping"
        signal.alarm(PATIENCE)
        raise KeyboardInterrupt
    raise Slow


def only_build() -> None:
    """In this process a run ends where it would begin, or after a round; the digits are read once."""
    import sklearn.datasets

    import fedrelay.report.progress as progress
    import fedrelay.studies.compare as compare
    import fedrelay.studies.tune as tune

    sklearn.datasets.load_digits = cache(sklearn.datasets.load_digits)

    def follow(recorder: Any, *_: Any, **__: Any) -> None:
        if os.environ["ATTACK_ROUND"]:
            one_round(recorder)
        raise Built

    progress.follow = compare.follow = sys.modules["fedrelay.cli.main"].follow = follow
    kept = tune.rounds_of

    def rounds_of(stretch: Any) -> Iterator[Any]:
        if not os.environ["ATTACK_ROUND"]:
            raise Built
        os.environ["ATTACK_ROUND"] = "running"
        yield next(kept(stretch))
        raise Built

    tune.rounds_of = rounds_of


def one_round(recorder: Any) -> None:
    os.environ["ATTACK_ROUND"] = "running"
    with suppress(StopIteration):
        next(recorder.run())
