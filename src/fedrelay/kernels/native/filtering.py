"""Convolutions of 3 x 3 in networks of any form, by Winograd's minimal filtering in the compiled library.

Where a network is run inside `Filtering`, such convolutions of many channels are taken out of the hands of PyTorch's
operator, forward and backward; all else, and the modules themselves, stay as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import nn

from fedrelay.kernels.native.library import Found, found
from fedrelay.kernels.views import Views

PANEL = 64
"""Channels and filters come by so many, as in `tiling.h`."""

ONE = (1, (1, 1), [1, 1])
"""As a stride, padding or dilation may say it."""
WEIGHTS = 14
"""To take the weights to the points, and to fetch them, costs as much as so many tiles."""
PLAIN = 14
"""What PyTorch's operator costs for each output, where a tile costs as much as it has points."""

Gradients: TypeAlias = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None]


class Shape(ctypes.Structure):
    """Of the images, and of the tiles that they are cut into: how many outputs of these are a side."""

    _fields_ = [(name, ctypes.c_int32) for name in ("out", "images", "height", "width", "channels", "filters")]


def filters(network: nn.Module) -> bool:
    """Whether there is something to gain in this network."""
    return any(isinstance(module, nn.Conv2d) and fits(module.weight) for module in network.modules())


def fits(weight: torch.Tensor) -> bool:
    """Whether these are filters of 3 x 3, of many channels each."""
    return (
        weight.ndim == 4 and weight.shape[2:] == (3, 3) and not weight.shape[0] % PANEL and not weight.shape[1] % PANEL
    )


@lru_cache(256)
def best_side(images: int, height: int, width: int) -> int | None:
    """Of the tiles that such images are best cut into: 2 or 4 outputs, at 16 or 36 points. None if PyTorch's operator
    is quicker, because there is too little to do with each weight. Measured with 64 to 512 channels."""
    tiles = {side: images * -(-height // side) * -(-width // side) for side in (2, 4)}
    costs = {side: (side + 2) ** 2 * (count + WEIGHTS) for side, count in tiles.items()}
    best = min(costs, key=lambda side: costs[side])
    return best if costs[best] < PLAIN * images * height * width else None


class Filtering(Views):
    """Inside, `torch.conv2d` is the compiled library's where that is quicker."""

    def __init__(self) -> None:
        super().__init__()
        self._room = Room()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d and usual(*args, **kwargs) and not torch._C._are_functorch_transforms_active():
            return convolve(*args, room=self._room, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)


def usual(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> bool:
    """Whether these arguments of `torch.conv2d` are such that the library can do it, and is quicker."""
    if not (stride in ONE and padding in ONE and dilation in ONE and groups == 1 and fits(weight)):
        return False
    if torch.is_autocast_enabled("cpu"):  # somebody wants fewer digits
        return False
    plain = input.dtype == weight.dtype == torch.float32 and input.device.type == weight.device.type == "cpu"
    known = plain and input.ndim == 4 and input.shape[1] == weight.shape[1] and input.numel() > 0
    return known and best_side(len(input), *input.shape[2:]) is not None


def convolve(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *_: object, room: Room, **__: object
) -> torch.Tensor:
    """The same as `torch.conv2d`, with arguments that are as usual."""
    output: torch.Tensor = Convolution.apply(input, weight, bias, room)  # type: ignore[no-untyped-call]
    return output


class Convolution(torch.autograd.Function):
    """A convolution of 3 x 3 with a zero on every side."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, room: Room) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.room, ctx.bias = room, bias is not None
        y = room.filter(x, weight, backward=False)
        return y if bias is None else y.add_(bias.view(-1, 1, 1))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Gradients:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody wants the gradient of a gradient
            sizes = [len(weight)] if ctx.bias else None
            how = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, list(wanted[:3])
            return *torch.ops.aten.convolution_backward.default(dy, x, weight, sizes, *how), None
        room = ctx.room
        dx = room.filter(dy, weight, backward=True) if wanted[0] else None
        dweight = room.gradient(x, dy, weight) if wanted[1] else None
        return dx, dweight, dy.sum((0, 2, 3)) if wanted[2] else None, None


class Room:
    """Scratch, kept from call to call, for one convolution at a time."""

    def __init__(self) -> None:
        library = found()
        assert isinstance(library, Found)
        self._library = library.library
        self._scratch = [torch.empty(0)]

    def filter(self, x: torch.Tensor, weight: torch.Tensor, *, backward: bool) -> torch.Tensor:
        """What a convolution makes of images; backward, the gradient of these from that of its outputs. In as many
        threads as operators have, to the same bits."""
        x, weight = laid(x), laid(weight)
        y = x.new_empty(len(x), *x.shape[2:], weight.shape[1 if backward else 0]).permute(0, 3, 1, 2)
        side, hands = best_side(len(x), *x.shape[2:]), max(min(torch.get_num_threads(), len(x)), 1)

        def part(hand: int) -> None:
            some = slice(len(x) * hand // hands, len(x) * (hand + 1) // hands)
            shape, scratch = self._prepare(x[some], weight, side, hand)
            where = x[some].data_ptr(), weight.data_ptr(), y[some].data_ptr(), scratch
            self._library.winograd_filter(ctypes.addressof(shape), backward, *where)

        self._scratch += [torch.empty(0)] * (hands - len(self._scratch))
        if hands == 1:
            part(0)
        else:
            with ThreadPoolExecutor(hands) as threads:
                list(threads.map(part, range(hands)))
        return y

    def gradient(self, x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """That of the filters, in one thread."""
        x, dy, gradient = laid(x), laid(dy), torch.empty_like(weight, memory_format=torch.channels_last)
        shape, scratch = self._prepare(x, weight, best_side(len(x), *x.shape[2:]), 0)
        where = x.data_ptr(), dy.data_ptr(), gradient.data_ptr(), scratch
        self._library.winograd_gradient(ctypes.addressof(shape), *where)
        return gradient

    def _prepare(self, x: torch.Tensor, weight: torch.Tensor, side: int | None, hand: int) -> tuple[Shape, int]:
        """The shape of a call, and where there is enough scratch for it."""
        shape = Shape(side, len(x), *x.shape[2:], weight.shape[1], weight.shape[0])
        numbers = self._library.winograd_scratch(ctypes.addressof(shape))
        if numbers > len(self._scratch[hand]):
            self._scratch[hand] = torch.empty(numbers)
        return shape, self._scratch[hand].data_ptr()


def laid(images: torch.Tensor) -> torch.Tensor:
    """The same with the channels of a pixel, or of a tap, side by side."""
    return images.contiguous(memory_format=torch.channels_last)
