"""Pickles, archives of arrays and models that carry code: none of it runs, wherever they are put.

Every payload, if it ran, would make a folder. It is put in place of each file that is, or could be taken for, a pickle.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import cases
import numpy as np
import published
from child import command, complaint, forked
from readers import BATCHES
from share import Share, Verdict

MARK = "code-has-run"
CODE = f"__import__('os').mkdir('{MARK}')"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


class Calls:
    """Pickled, it is a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def call(module: str, name: str, argument: bytes) -> bytes:
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + argument + b"\x85R."


def nested() -> bytes:
    """Inside of what looks like a batch of CIFAR."""
    return pickle.dumps({b"data": Calls(eval, CODE), b"labels": [1, 2]}, protocol=2)


PAYLOADS: dict[str, Callable[[], bytes]] = {
    "GLOBAL os.mkdir": lambda: call("os", "mkdir", text(MARK)),
    "GLOBAL posix.mkdir": lambda: call("posix", "mkdir", text(MARK)),
    "GLOBAL posix.system": lambda: call("posix", "system", text(f"mkdir {MARK}")),
    "builtins.eval": lambda: call("builtins", "eval", text(CODE)),
    "builtins.exec": lambda: call("builtins", "exec", text(CODE)),
    "__builtin__.eval of Python 2": lambda: call("__builtin__", "eval", text(CODE)),
    "subprocess.getoutput": lambda: call("subprocess", "getoutput", text(f"mkdir {MARK}")),
    "runpy": lambda: b"\x80\x02crunpy\n_run_code\n" + text(CODE) + b"}\x86R.",
    "STACK_GLOBAL": lambda: b"\x80\x04" + short("os") + short("mkdir") + b"\x93" + short(MARK) + b"\x85R.",
    "STACK_GLOBAL of a dotted name": lambda: (
        b"\x80\x04" + short("fedrelay.system.files") + short("os.mkdir") + b"\x93" + short(MARK) + b"\x85R."
    ),
    "INST": lambda: b"(S'" + MARK.encode() + b"'\nios\nmkdir\n.",
    "OBJ": lambda: b"(cos\nmkdir\nS'" + MARK.encode() + b"'\no.",
    "NEWOBJ": lambda: b"\x80\x02cos\nmkdir\n" + text(MARK) + b"\x85\x81.",
    "NEWOBJ_EX": lambda: b"\x80\x04" + short("os") + short("mkdir") + b"\x93" + short(MARK) + b"\x85}\x92.",
    "EXT1": lambda: b"\x80\x02\x82\x01" + text(MARK) + b"\x85R.",
    "PERSID": lambda: b"Pos.mkdir\n.",
    "BUILD": lambda: pickle.dumps({"a": Calls(eval, CODE)}, protocol=2)[:-1] + b"}b.",
    "inside a batch": nested,
    "functools.partial": lambda: b"\x80\x02cfunctools\npartial\ncos\nmkdir\n" + text(MARK) + b"\x86R)R.",
    "numpy's own loader": lambda: call("numpy", "load", text(MARK)),
    "torch._utils by getattr": lambda: (
        b"\x80\x02cbuiltins\ngetattr\ncbuiltins\n__import__\n"
        + text("os")
        + b"\x85R"
        + text("mkdir")
        + b"\x86R"
        + text(MARK)
        + b"\x85R."
    ),
    "an array of objects": lambda: pickle.dumps(np.array([Calls(eval, CODE)], dtype=object), protocol=2),
}


def as_torch(payload: bytes) -> bytes:
    """As torch.save writes it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in (("data.pkl", payload), ("version", b"3\n"), ("byteorder", b"little")):
            file.writestr(f"archive/{name}", content)
    return stream.getvalue()


def as_npy(payload: bytes) -> bytes:
    """An array of objects, which are pickled."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def as_npz(payload: bytes, *names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(f"{name}.npy", as_npy(payload))
    return stream.getvalue()


# --- where a payload is put, and who reads it


def cifar(folder: Path, payload: bytes) -> str:
    for name in BATCHES:
        published.write(folder / "data" / "cifar-10-batches-py" / name, payload)
    return said_by(folder, "data", "show", "cifar10", "--data-dir", "data")


def femnist(folder: Path, payload: bytes) -> str:
    columns = "x", "y", "writer", "is_test", "writer_names"
    published.write(folder / "data" / "femnist" / "femnist.npz", as_npz(payload, *columns))
    return said_by(folder, "data", "show", "femnist", "--data-dir", "data")


def predicted(folder: Path, payload: bytes) -> str:
    published.write(folder / "x.npz", as_npz(payload, "x"))
    return said_by(folder, "predict", "out", "x.npz")


def model(folder: Path, payload: bytes) -> str:
    for kind, content in (("zip", as_torch(payload)), ("plain", payload)):
        published.write(folder / "out" / "model.pt", content)
        if problem := said_by(folder, "predict", "out", "digits"):
            return f"{kind}: {problem}"
    return ""


def checkpoint(folder: Path, payload: bytes) -> str:
    """With its fingerprint right, as somebody who sends a run folder would have it."""
    import hashlib

    from fedrelay.runs.checkpoint import LENGTH

    for content in (as_torch(payload), payload):
        index = json.dumps([{"clients": [], "start": 0, "length": len(content)}]).encode()
        whole = content + index + len(index).to_bytes(LENGTH, "little")
        rmtree(folder / "out" / "checkpoint")
        name = f"round-000006-{hashlib.sha256(whole).hexdigest()}.pt"
        published.write(folder / "out" / "checkpoint" / name, whole)
        if problem := said_by(folder, "run", "case.toml", "--out", "out", "--resume"):
            return problem
    return ""


PLACES = {"cifar10": cifar, "femnist": femnist, "predict": predicted, "model.pt": model, "checkpoint": checkpoint}


def said_by(folder: Path, *arguments: str) -> str:
    return complaint(command(arguments, folder), (0, 2))


def planted(share: Share) -> Iterator[Verdict]:
    """Every payload in every place."""
    run = share.folder / "run"
    ended = command(cases.INLINE[0].write(run), run)
    if problem := complaint(ended):
        raise RuntimeError(problem)
    checked = works(share.folder / "proof")
    pairs = [(payload, place) for payload in PAYLOADS for place in PLACES]
    for number in share.numbers():
        if number >= len(pairs):
            return
        payload, place = pairs[number]
        own = share.folder / "trial"
        rmtree(own, ignore_errors=True)
        copytree(run, own)
        problem = PLACES[place](own, PAYLOADS[payload]())
        if list(own.rglob(MARK)) or (share.folder / MARK).exists():
            problem = "its code has run"
        yield Verdict(f"{payload} in {place}", problem, figures={"payloads that do run in plain pickle": checked})


def works(folder: Path) -> int:
    """How many payloads do run their code if plain pickle loads them: an attack that cannot succeed shows nothing."""
    found = 0
    for number, payload in enumerate(PAYLOADS.values()):
        own = folder / str(number)
        own.mkdir(parents=True, exist_ok=True)

        def load(own: Path = own, data: bytes = payload()) -> int:
            import os

            os.chdir(own)
            pickle.loads(data)
            return 0

        forked(load)
        found += (own / MARK).exists()
    return found
