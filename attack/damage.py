"""Damaged data files: whatever bytes a reader is given, it reads them or says in our words what is wrong.

Where atheris is installed it does the damage, and keeps what reaches new code; else bytes are changed at random.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any, NoReturn

from child import end_with_parent, forked, last_line, limit
from share import Share, Verdict

PATIENCE = 20
"""Seconds for one file."""
ROOM = 3 << 30
TURN = 715
"""So many files of one reader are tried before the next has its turn; starting a fuzzer takes seconds."""


def guided() -> bool:
    """Whether a fuzzer is there that is guided by what code is reached."""
    return importlib.util.find_spec("atheris") is not None


def files(share: Share) -> Iterator[Verdict]:
    """Every reader in turn, until there are enough files."""
    from readers import READERS

    numbers, turn = len(list(share.numbers())), share.done // TURN
    while numbers > 0 and share.left:
        reader = (turn * share.lanes + share.lane) % len(READERS)
        count = min(TURN, numbers, -(-share.wanted // len(READERS)))
        for verdict in attempt(share, reader, turn, count):
            numbers -= verdict.trials
            yield verdict
        turn += 1


def attempt(share: Share, reader: int, turn: int, count: int) -> Iterator[Verdict]:
    """So many files of one reader in a process of its own; a file that ends the process is a problem of its own."""
    from readers import READERS

    own = share.folder / f"reader-{reader}"
    own.mkdir(exist_ok=True)
    told = own / "told.jsonl"
    told.unlink(missing_ok=True)
    seed = share.rng(reader, turn, share.lane).randrange(1, 2**31)
    if share.guided and guided():
        code, said = fuzzed(own, reader, seed, count)
    else:
        ended = forked(lambda: shaken(own, reader, seed, count), room=ROOM)
        code, said = ended.code, ended.said
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    problems = [line["problem"] for line in lines if "problem" in line]
    tried = max((line["tried"] for line in lines), default=0)
    name = READERS[reader].name
    for problem in problems:
        yield Verdict(name, problem)
    if code not in (0, None):
        yield Verdict(name, f"the process ended with {code}: {last_line(said)}; seed {seed}")
    held = tried - len(problems) - (code not in (0, None))
    if held > 0:
        yield Verdict(name, trials=held)
    elif not problems and code in (0, None):
        yield Verdict(name, f"nothing was tried: {said[-300:]}")


def fuzzed(own: Path, reader: int, seed: int, count: int) -> tuple[int, str]:
    """By atheris, which must be there before what it watches is imported: so in a new interpreter."""
    arguments = [sys.executable, str(Path(__file__)), str(own), str(reader), str(seed), str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", timeout=1200)
    return done.returncode, done.stderr


def shaken(own: Path, reader: int, seed: int, count: int) -> int:
    """By bytes that are changed at random."""
    from readers import READERS

    rng, judge = random.Random(seed), Judge(own, reader)
    seeds = READERS[reader].seeds()
    for _ in range(count):
        judge(damaged(rng.choice(seeds), rng))
    judge.end()
    return 0


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Cut off, overwritten in places, with bytes put in or taken out; half of it in the head, which decides most."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        place = place % 64 if rng.random() < 0.5 else place
        some = rng.choice((rng.randbytes(rng.randint(1, 8)), b"\xff" * 4, b"\0" * 8, b"\x7f\xff\xff\xff"))
        kind = rng.choice(("cut", "over", "over", "in", "out", "flip"))
        if kind == "cut" and rng.random() < 0.3:
            del data[place:]
        elif kind == "over":
            data[place : place + len(some)] = some
        elif kind == "in":
            data[place:place] = some
        elif kind == "out":
            del data[place : place + rng.randint(1, 8)]
        elif place < len(data):
            data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


class TooLong(BaseException):
    """A file kept its reader busy for too long."""


class Judge:
    """Gives files to a reader, and writes down what is neither read nor refused in our words."""

    def __init__(self, own: Path, reader: int) -> None:
        from readers import READERS

        self.own, self.reader, self.tried = own, READERS[reader], 0
        self.known: set[str] = set()
        self.file = (own / "told.jsonl").open("a", buffering=1)
        self.scratch = own / "files"
        if signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, None):
            signal.signal(signal.SIGALRM, too_long)

    def __call__(self, data: bytes) -> None:
        rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self.reader.lay(self.scratch, data)
        self.tried += 1
        signal.alarm(PATIENCE)
        problem = self.judged()
        signal.alarm(0)
        if problem and problem not in self.known:
            self.known.add(problem)
            kept = self.own / f"broke-{len(self.known)}"
            kept.write_bytes(data)
            self.tell(problem=f"{problem} ({kept.name}, {len(data)} bytes)")
        elif self.tried % 50 == 0:
            self.tell()

    def judged(self) -> str:
        from fedrelay.errors import BadInput, RunFailed

        try:
            self.reader.read(self.scratch)
        except (BadInput, RunFailed):
            return ""
        except (Exception, TooLong) as error:
            where = traceback.extract_tb(error.__traceback__)
            ours = [f"{Path(one.filename).name}:{one.lineno}" for one in where if "fedrelay" in one.filename]
            return f"{type(error).__name__} in {ours[-1] if ours else 'a library'}: {str(error)[:150]}"
        return ""

    def tell(self, **more: Any) -> None:
        self.file.write(json.dumps({"tried": self.tried, **more}) + "\n")

    def end(self) -> None:
        self.tell()


def too_long(signum: int, frame: Any) -> NoReturn:
    raise TooLong(f"it took longer than {PATIENCE} s")


def main(arguments: Sequence[str]) -> None:
    """Under atheris; it never returns."""
    import warm

    own, reader, seed, count = Path(arguments[0]), *map(int, arguments[1:4])
    warm.prepare(own)
    end_with_parent()
    import atheris

    with atheris.instrument_imports(include=["fedrelay.data"]):
        import fedrelay.data
        import fedrelay.data.download
        import fedrelay.data.own
        import fedrelay.data.splitfile  # noqa: F401
    from readers import READERS

    corpus = own / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(READERS[reader].seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    limit(ROOM)
    judge = Judge(own, reader)

    def one(data: bytes) -> None:
        judge(data)
        if judge.tried >= count:
            judge.end()
            os._exit(0)  # libFuzzer would go on to say things

    limits = [f"-seed={seed}", f"-timeout={PATIENCE + 10}", "-rss_limit_mb=0", "-max_len=20000", "-len_control=0"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={own}/", str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
