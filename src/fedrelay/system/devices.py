"""Where numbers are computed: which devices there are, how much room they have, and what they lack.

One place decides: an engine asks here for the device that its configuration names, models are put there, and everything
else is made where the model is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

from fedrelay.errors import BadInput, RunFailed

CPU = torch.device("cpu")
KINDS = ("cuda", "xpu", "mps")
"""Kinds of device besides the processor, in the order in which `auto` looks for them: GPUs of NVIDIA and AMD (torch
calls both cuda), of Intel, of Apple."""
GIGABYTE = 1 << 30
NUMBERED = re.compile(r"([a-z0-9_]+):(\d{1,3})")


# --- which there are


def count(kind: str) -> int:
    """How many devices of this kind torch can use here."""
    module = torch.get_device_module(kind)
    return int(module.device_count()) if module.is_available() else 0


def found() -> list[str]:
    """All devices of this machine, by the names that a configuration has for them."""
    names = ["cpu"]
    for kind in KINDS:
        names += [f"{kind}:{number}" for number in range(count(kind))]
    return names


def chosen(name: str) -> str:
    """What `auto` stands for on this machine: the first kind of GPU that is there, or the processor; every other name
    stands for itself."""
    return next((kind for kind in KINDS if count(kind)), "cpu") if name == "auto" else name


def every(name: str) -> list[torch.device]:
    """The devices that a name stands for: `cuda` for all GPUs of that kind, `cuda:1` for one. What is not there is
    refused, with what is."""
    name = chosen(name)
    if name == "cpu":
        return [CPU]
    numbered = NUMBERED.fullmatch(name)
    kind = numbered[1] if numbered else name
    if kind not in KINDS:
        words = ", ".join(("auto", "cpu", *KINDS, f"{KINDS[0]}:1"))
        raise BadInput(f"device must be one of {words}, not {name!r:.60}; this machine has {', '.join(found())}")
    numbers = [int(numbered[2])] if numbered else list(range(count(kind)))
    if not numbers or max(numbers) >= count(kind):
        raise BadInput(
            f"device {name!r} is not there: this machine has {', '.join(found())}{why_not(kind)}; "
            'device = "auto" takes what there is'
        )
    if (
        kind == "cuda"
    ):  # cuBLAS adds up in a fixed order only with room of its own, which it takes when it is first used
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return [torch.device(kind, number) for number in numbers]


def find(name: str) -> torch.device:
    """The one device that a name stands for: of several, the first."""
    return every(name)[0]


def why_not(kind: str) -> str:
    """Why torch sees no such device, where it can be told."""
    if count(kind):
        return ""
    built = {"cuda": torch._C._has_cuda, "mps": torch._C._has_mps}.get(kind, True)
    return "" if built else f" (torch {torch.__version__} was built without {kind})"


def kind_of(name: object) -> str:
    """The kind that a configuration's name stands for; without one it is the processor."""
    return str(name or "cpu").partition(":")[0]


def title(device: torch.device) -> str:
    """What it is, for records: bits are promised on devices of the same title."""
    if device.type == "cpu":
        return "cpu"
    module = torch.get_device_module(device)
    name = module.get_device_name(device) if hasattr(module, "get_device_name") else ""
    return f"{device.type} ({name})" if name else device.type


# --- how much room they have


def free(device: torch.device) -> int | None:
    """How many bytes are free there; None if nobody can tell."""
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    module = torch.get_device_module(device)
    return int(module.mem_get_info(device)[0]) if hasattr(module, "mem_get_info") else None


def in_words(count: float) -> str:
    """Bytes, for people."""
    for unit, size in (("GB", GIGABYTE), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


# --- how they compute


def finish(device: torch.device) -> None:
    """Wait until a device has done what it was told; a processor always has."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def deterministic(device: torch.device) -> AbstractContextManager[None]:
    """Inside, a GPU gives the same bits every time: sums in a fixed order, kernels not chosen by the clock, products in
    full float32. A processor always does."""
    return nullcontext() if device.type == "cpu" else _deterministic()


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = False, True, False, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = flags


LACKING: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"The operator '([\w:.]+)' is not currently (?:implemented|supported)"), "has no operator {}"),
    (re.compile(r"Could not run '([\w:.]+)' with arguments from"), "has no operator {}"),
    (re.compile(r"[\"']([\w.]+)[\"'] not implemented for"), "has no operator {} for these numbers"),
    (
        re.compile(r"^([\w.:]+) does not have a deterministic implementation"),
        "has no operator {} that repeats its bits",
    ),
    (re.compile(r"doesn't support (float64)|(float64) dtype"), "has no operators for {}"),
)
"""How torch says that a device cannot do something, and how we do."""


def lacking(error: BaseException, device: torch.device) -> RunFailed | None:
    """What a device lacks that this error comes from, and what to do; None if it comes from something else."""
    if device.type == "cpu":
        return None
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        left = free(device)
        rest = "" if left is None else f", of which {in_words(left)} are free now"
        first = text.splitlines()[0] if text else type(error).__name__
        return RunFailed(
            f"{device} ran out of memory{rest} ({first}): a smaller [local] batch, fewer rows ([engine] rows), or "
            "[engine] memory_limit for what clients keep need less"
        )
    for pattern, words in LACKING:
        match = pattern.search(text)
        if match:
            name = next(part for part in match.groups() if part)
            return RunFailed(f"{device} {words.format(name)}: {remedy(device)}")
    return None


def remedy(device: torch.device) -> str:
    """What helps where an operator is missing."""
    fallback = "PYTORCH_ENABLE_MPS_FALLBACK=1 in the environment lets the processor do it (slowly), or "
    return f'{fallback if device.type == "mps" else ""}[engine] device = "cpu" has it, or take a model without it'


# --- moving things there


T = TypeVar("T")


def placed(tree: T, device: torch.device) -> T:
    """The same plain data (records, dicts, tuples) with every tensor on this device; what is there already stays the
    same object."""
    found: T = _placed(tree, lambda tensor: tensor if tensor.device == device else tensor.to(device))
    return found


def _placed(part: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(part, torch.Tensor):
        return move(part)
    if isinstance(part, Mapping):
        moved = {key: _placed(value, move) for key, value in part.items()}
        return moved if any(moved[key] is not part[key] for key in moved) else part
    if isinstance(part, tuple | list):
        several = [_placed(value, move) for value in part]
        same = all(new is old for new, old in zip(several, part, strict=True))
        return part if same else type(part)(several)
    if is_dataclass(part) and not isinstance(part, type):
        changed = {item.name: _placed(getattr(part, item.name), move) for item in fields(part)}
        new = {name: value for name, value in changed.items() if value is not getattr(part, name)}
        return replace(part, **new) if new else part
    return part
