"""A device that is not there: the processor computes, but every tensor says where it would be, and whatever a GPU would
refuse or do in silence is an error.

Torch knows the device by name (`pretended:0`). Tensors stay ordinary ones of the processor; which of them are on the
device is known by their storage. One mode answers for them (`tensor.device`, `.to`, factories with `device=`), another
sees every operator and refuses those that get tensors of both places.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

NAME = "pretended"
CPU = torch.device("cpu")


class DevicesMixed(AssertionError):
    """An operator got tensors of two devices, or copied from one to the other without being told to."""


class Module(types.ModuleType):
    """What torch asks of the module of a device, such as `torch.cuda`. It stays for the process, with no device."""

    count, room = 0, 1 << 34
    before = 0
    """Bytes that were in use there when the room was said."""

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return self.room + self.before - THERE.used(), self.room

    def synchronize(self, device: object = None) -> None:
        """The processor has computed it already; a GPU would be waited for."""

    def get_device_name(self, device: object = None) -> str:
        return "made up"

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)  # the processor draws for it

    manual_seed_all = manual_seed

    def _is_in_bad_fork(self) -> bool:
        return False


def registered() -> Module:
    """Torch knows the name from then on, and the module that goes with it."""
    try:
        torch.device(NAME)
    except RuntimeError:
        torch.utils.rename_privateuse1_backend(NAME)
    if not hasattr(torch, NAME):
        setattr(torch, NAME, Module(NAME))
    found: Module = getattr(torch, NAME)
    return found


class There:
    """Which storages are on the device. A weak reference keeps a storage's address from being used again."""

    def __init__(self) -> None:
        self._known: dict[int, StorageWeakRef] = {}

    def has(self, tensor: torch.Tensor) -> bool:
        return storage_of(tensor)._cdata in self._known

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = storage_of(tensor)
        self._known.setdefault(storage._cdata, StorageWeakRef(storage))
        if len(self._known) > 20_000:
            self._known = {key: ref for key, ref in self._known.items() if not ref.expired()}
        return tensor

    def used(self) -> int:
        """How many bytes they take."""
        kept = [torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in self._known.values()]
        return sum(storage.nbytes() for storage in kept if storage is not None)

    def take_away(self, tensor: torch.Tensor) -> torch.Tensor:
        self._known.pop(storage_of(tensor)._cdata, None)
        return tensor


SETTING = (torch.ops.aten.fill_.Tensor, torch.ops.aten.index_put_.default)
THERE = There()
"""One for the process: what is made on the device once may be used again later."""


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()


def tensors_in(*trees: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(trees)[0] if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta"]


class Answers(TorchFunctionMode):
    """Says where tensors are, and moves them when it is told to."""

    def __init__(self, device: torch.device, there: There) -> None:
        super().__init__()
        self.device, self.there = device, there
        self.depth = 0
        self.brought_back = list[int]()
        """Of tensors that were brought to main memory by name: how many numbers each had."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:
            return self.device if self._has(args[0]) else func(*args)
        if func in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr) and self._has(args[0]):
            raise DevicesMixed(f"{func.__name__} of a tensor on {self.device}: say .cpu() first")
        if func in (torch.Tensor.tolist, torch.Tensor.item) and self._has(args[0]):
            self.brought_back.append(args[0].numel())
            return func(*args)
        if func in (torch.Tensor.to, torch.Tensor.cpu):
            return self._moved(func, args, kwargs)
        if "device" in kwargs:
            return self._made(func, args, kwargs)
        return self._called(func, args, kwargs)

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Whatever torch makes on its way to an answer from tensors on the device is there too."""
        inside = any(self._has(tensor) for tensor in tensors_in(args, kwargs))
        self.depth += inside
        try:
            return func(*args, **kwargs)
        finally:
            self.depth -= inside

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        wanted = kwargs.pop("device")
        if wanted is None or torch.device(wanted).type != NAME:
            return self._called(func, args, {**kwargs, "device": wanted})
        found = self._called(func, args, {**kwargs, "device": CPU})
        for tensor in tensors_in(found):
            self.there.put(tensor)
        return found

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor, *rest = args
        wanted = CPU if func is torch.Tensor.cpu else kwargs.pop("device", None)
        kept = []
        for part in rest:
            if isinstance(part, str | torch.device):
                wanted = part
            elif isinstance(part, torch.Tensor):
                wanted = part.device if not self._has(part) else self.device
                kept.append(part.dtype)
            elif isinstance(part, torch.dtype):
                kept.append(part)
        found = self._called(torch.Tensor.to, (tensor, *kept), kwargs) if kept or kwargs else tensor
        if wanted is None or torch.device(wanted).type == "meta":
            return found if wanted is None else torch.Tensor.to(found, wanted)
        there = torch.device(wanted).type == NAME
        if there == self._has(found):
            return found
        with torch.no_grad():
            copy = found.detach().clone()
        if there:
            return self.there.put(copy)
        self.brought_back.append(found.numel())
        return self.there.take_away(copy)

    def _has(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and not is_meta(tensor) and self.there.has(tensor)


def is_meta(tensor: torch.Tensor) -> bool:
    return tensor.is_meta


class Operators(TorchDispatchMode):
    """Sees every operator: all of its tensors must be in one place, and what it makes is there too."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.answers, self.there = answers, answers.there

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_in(args, kwargs)
        places = [self.there.has(tensor) for tensor in given]
        # x[…] = 0.5 is no copy of a tensor, though torch makes one of the number.
        number = func in SETTING and not given[-1].ndim
        if any(places) and not all(places) and not number:
            shapes = [
                f"{tuple(t.shape)} {'there' if there else 'here'}" for t, there in zip(given, places, strict=True)
            ]
            raise DevicesMixed(f"{func} of {', '.join(shapes)}")
        found = func(*args, **kwargs)
        if any(places) or (not given and self.answers.depth):
            for tensor in tensors_in(found):
                self.there.put(tensor)
        return found


@contextmanager
def pretended(*, count: int = 1, room: int = 1 << 34) -> Iterator[Answers]:
    """Inside there are so many devices of this kind, with so many free bytes each."""
    module = registered()
    module.count, module.room, module.before = count, room, THERE.used()
    answers = Answers(torch.device(NAME, 0), THERE)
    try:
        with answers, Operators(answers):
            yield answers
    finally:
        module.count, module.room = 0, Module.room
