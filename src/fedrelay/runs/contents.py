"""What a checkpoint may hold. Everything else is refused by its place before a run goes on with it.

A fingerprint says that a file is as it was written, not who wrote it: a folder may come from elsewhere. Checked are the
records of a run, to the last field, and that all else is plain data and tensors of this process's memory. Records of
older versions lack fields that have defaults, those of newer ones have more: neither is refused. What a method keeps to
itself (`shared`, `server`, `memo`) is only checked to be plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from operator import is_
from typing import Any, cast

import torch

from fedrelay.plans.grouping.groups import Alone, Grouped
from fedrelay.runs.json_files import Damaged
from fedrelay.runs.log import Dropped, Hit, RoundLog, Undescribed
from fedrelay.system.sequences import Integers
from fedrelay.types import Baton, Chain, Drop, Outcome, Report, State


@dataclass(frozen=True)
class Elsewhere:
    """In place of a tensor that lies beside the checkpoint: which of those it is."""

    number: int


RECORDS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    *(Baton, Chain, Drop, Outcome, Report, State),
    # By the names that they had when the vocabulary was one file: such runs go on.
    *((record, f"fedrelay.types.{record.__name__}") for record in (Baton, Chain, Drop, Outcome, Report, State)),
    *(RoundLog, Dropped, Hit, Undescribed),
    *(Integers, Grouped, Alone),
    Elsewhere,
]
DEEPEST, MOST = 40, 20_000_000
"""How deep plain data may be nested, and of how many parts it may be made: more is no run's."""

KEYS = (str, int, float, bool, tuple)

Reader = Callable[[Any, str], Any]
"""The value if it can stand in this place; else Damaged."""


def need(good: bool, where: str, expected: str, found: object) -> None:
    if not good:
        raise Damaged(f"{where} should be {expected}, found {worded(found)}")


def worded(value: object) -> str:
    """What was found, in a few words."""
    if isinstance(value, torch.Tensor):
        size = " × ".join(map(str, value.shape[:4])) or "one number"
        kind = "" if value.layout == torch.strided and on_cpu(value) else f" ({value.layout} on {value.device})"
        return f"a {value.dtype} tensor of {size}{kind}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:40]
    return f"a {type(value).__name__}"


# --- plain data


def plain(value: Any, where: str) -> Any:
    """Numbers, texts, tensors, our records, and plain containers of them; nothing endless."""
    left = [MOST]

    def walk(part: Any, where: str, depth: int) -> None:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise Damaged(f"{where[:60]}… is nested without end")
        if isinstance(part, torch.Tensor):
            tensor(part, where)
        elif type(part) is dict:
            for key, each in part.items():
                need(key is None or type(key) in KEYS, where, "by plain keys", key)
                walk(each, f"{where}[{key!r:.40}]", depth + 1)
        elif type(part) in (tuple, list):
            for number, each in enumerate(part):
                if type(each) is not int:  # groups of many clients are most of what there is
                    walk(each, f"{where}[{number}]", depth + 1)
        elif type(part) in FIELDS:
            record(type(part))(part, where)
        else:
            need(part is None or type(part) in (bool, int, float, str, bytes), where, "plain data", part)

    walk(value, where, 0)
    return value


def tensor(value: Any, where: str) -> torch.Tensor:
    """An ordinary tensor that has all of its numbers."""
    good = type(value) is torch.Tensor and value.layout == torch.strided and on_cpu(value)
    good = good and not value.requires_grad and not value.is_quantized
    need(good, where, "an ordinary tensor", value)
    enough = value.untyped_storage().nbytes() >= value.numel() * value.element_size()
    need(enough, where, "a tensor with all its numbers", value)
    return cast(torch.Tensor, value)


def on_cpu(value: torch.Tensor) -> bool:
    return value.device.type == "cpu"


def vector(value: Any, where: str) -> torch.Tensor:
    """A model, or something of its kind."""
    need(isinstance(value, torch.Tensor), where, "a vector", value)
    found = tensor(value, where)
    need(found.dtype == torch.float32 and found.dim() == 1 and found.is_contiguous(), where, "a float32 vector", found)
    return found


def integers(value: Any, where: str) -> torch.Tensor:
    """Whole numbers in a row."""
    found = tensor(value, where)
    good = found.dtype in (torch.int32, torch.int64) and found.dim() == 1 and found.is_contiguous()
    need(good, where, "whole numbers in a row", found)
    return found


def starts(value: Any, where: str) -> Any:
    """Where groups begin among their members, and where the last one ends."""
    found: Integers = record(Integers)(value, where)
    need(bool((found.numbers.diff() > 0).all()), where, "rising", found.numbers)
    return found


def tree(value: Any, where: str) -> Any:
    """Plain data by name."""
    need(type(value) is dict and all(type(key) is str for key in value), where, "plain data by name", value)
    return plain(value, where)


def number(value: Any, where: str) -> Any:
    need(type(value) in (int, float), where, "a number", value)
    return value


def whole(value: Any, where: str) -> Any:
    need(type(value) is int and value >= 0, where, "a whole number from 0 on", value)
    return value


def text(value: Any, where: str) -> Any:
    need(type(value) is str, where, "a text", value)
    return value


def maybe(read: Reader) -> Reader:
    return lambda value, where: None if value is None else read(value, where)


def several(read: Reader, least: int = 0) -> Reader:
    """A tuple of them."""

    def all_of(value: Any, where: str) -> Any:
        need(type(value) in (tuple, list) and len(value) >= least, where, f"a list of at least {least}", value)
        return tuple(read(each, f"{where}[{place}]") for place, each in enumerate(value))

    return all_of


# --- our records


def record(kind: type[Any]) -> Reader:
    """One of our records, made anew of the fields that we know."""

    def made(value: Any, where: str) -> Any:
        need(type(value) is kind, where, f"a {kind.__name__}", value)
        found: Mapping[str, Any] = vars(value)
        values = {}
        for item in fields(kind):
            if item.name in found:
                read = FIELDS[kind].get(item.name, plain)
                values[item.name] = read(found[item.name], f"{where}.{item.name}")
            elif item.default is item.default_factory is MISSING:
                raise Damaged(f"{where}.{item.name} is missing")
        try:
            return kind(**values)
        except ValueError as error:  # its fields do not go together
            raise Damaged(f"{where}: {error}") from None

    return made


def state_of(value: Any) -> State:
    """The state of a run; whatever is none is refused by its place."""
    try:
        found: State = record(State)(value, "state")
    except RecursionError:  # a record that holds itself
        raise Damaged("state is nested without end") from None
    need(found.log is None or found.log.round == found.round, "state.log", f"that of round {found.round}", found.log)
    return found


FIELDS: dict[type[Any], dict[str, Reader]] = {
    Integers: {"numbers": integers},
    Grouped: {"members": record(Integers), "starts": starts},
    Alone: {"length": whole},
    Baton: {"params": vector, "weight": number},
    Chain: {
        "start": record(Baton),
        "clients": several(whole),
        "slot": whole,
        "weight": maybe(number),
        "holder": maybe(whole),
    },
    Report: {"client": whole, "examples": whole, "metrics": tree, "uplink": tree},
    Drop: {"client": whole, "hop": whole, "reason": text},
    Outcome: {
        "chain": record(Chain),
        "baton": record(Baton),
        "reports": several(record(Report)),
        "dropped": several(record(Drop)),
        "finished_at": number,
    },
    Dropped: {"client": whole, "chain": whole, "hop": whole, "reason": text},
    Hit: {"client": whole, "chain": whole, "hop": whole},
    Undescribed: {"client": whole, "reason": text},
    RoundLog: {
        **dict.fromkeys(("round", "clients", "chains", "depth", "examples", "visits", "groups"), whole),
        **dict.fromkeys(
            (
                "messages",
                "bytes",
                "relayed",
                "describing",
                "sampling",
                "metrics",
                "over_clients",
                "pool",
                "wire",
                "defence",
                "privacy",
            ),
            tree,
        ),
        **dict.fromkeys(("train_loss", "simulated_seconds", "classes"), maybe(number)),
        "seconds": number,
        "drops": several(record(Dropped)),
        "order": several(several(whole)),
        **dict.fromkeys(("kept", "joined"), several(whole)),
        "undescribed": several(record(Undescribed)),
        "attacked": several(record(Hit)),
    },
    State: {
        **dict.fromkeys(("round", "examples", "groups", "slots"), whole),
        **dict.fromkeys(("shared", "server", "memo", "told"), tree),
        "batons": several(record(Baton), least=1),
        "waiting": several(record(Outcome)),
        "clock": number,
        "device": text,
        "log": maybe(record(RoundLog)),
        **dict.fromkeys(("participants", "joined", "attackers"), several(whole)),
        "trainable": maybe(whole),
        "described": plain,
    },
}


# --- tensors that lie beside it


def exchanged(value: Any, change: Callable[[Any], Any]) -> Any:
    """Plain data in which every tensor, and every place of one, is what `change` gives for it; what holds none of them
    stays the same object."""
    left = [MOST]

    def walk(part: Any, depth: int) -> Any:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise Damaged("state is nested without end")
        if isinstance(part, torch.Tensor) or type(part) is Elsewhere:
            return change(part)
        if type(part) is dict:
            values = {key: walk(each, depth + 1) for key, each in part.items()}
            return part if all(values[key] is each for key, each in part.items()) else values
        if type(part) in (tuple, list):
            if all(type(each) is int for each in part):  # groups of many clients
                return part
            items = [walk(each, depth + 1) for each in part]
            return part if all(map(is_, items, part)) else type(part)(items)
        if type(part) in RECORDS:
            found = {name: walk(each, depth + 1) for name, each in vars(part).items()}
            return part if all(found[name] is each for name, each in vars(part).items()) else remade(part, found)
        return part

    return walk(value, 0)


def remade(part: Any, values: Mapping[str, Any]) -> Any:
    """A record with other values, which need not go together: whoever reads it will see to that."""
    made = object.__new__(type(part))
    vars(made).update(values)
    return made


def with_tensors(state: Any, tensors: Mapping[int, torch.Tensor]) -> Any:
    """A state as it was read, with the tensors that lay beside it."""

    def found(part: Any) -> Any:
        if not isinstance(part, Elsewhere):
            return part
        number = vars(part).get("number", -1)
        need(type(number) is int, "the number of a tensor beside the state", "a whole number", number)
        need(number in tensors, "state", f"beside tensor {number}", "it is not there")
        return tensors[number]

    return exchanged(state, found)


# --- before it is saved


def check(tree: object, where: str = "state") -> None:
    """Only our own records, plain containers, numbers, texts and tensors can be read back."""
    if tree is None or isinstance(tree, torch.Tensor) or type(tree) in (bool, int, float, str, bytes):
        return
    if is_dataclass(tree) and type(tree) in RECORDS:
        for item in fields(tree):
            check(getattr(tree, item.name), f"{where}.{item.name}")
    elif type(tree) is dict:
        for key, value in tree.items():
            check(value, f"{where}[{key!r}]")
    elif type(tree) in (tuple, list):
        for number, value in enumerate(tree):  # type: ignore[arg-type]
            check(value, f"{where}[{number}]")
    else:
        raise TypeError(f"{where} is a {type(tree).__name__}: a checkpoint takes plain data and tensors only")
