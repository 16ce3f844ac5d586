"""Networks as the compiled library takes them: convolutions, each with what follows it, or LSTM layers, and then dense
layers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from fedrelay.kernels.layers import modules, plain, usable
from fedrelay.kernels.native.recurrent import Reading, reading_of
from fedrelay.models.lstm import Reader
from fedrelay.vectors import Entry, Layout

STAGES = 16
"""So many convolutions at most, as in `conv.h`."""


class Stage(ctypes.Structure):
    """A convolution: where it is in the vector, its size, and whether max-pooling, ReLU and dropout follow. The size of
    its images is not known before there are some."""

    _fields_ = (
        ("weight", ctypes.c_int64),
        ("bias", ctypes.c_int64),
        ("channels", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("filters", ctypes.c_int32),
        ("high", ctypes.c_int32),
        ("wide", ctypes.c_int32),
        ("down", ctypes.c_int32),
        ("right", ctypes.c_int32),
        ("pool", ctypes.c_int32),
        ("relu", ctypes.c_int32),
        ("share", ctypes.c_int32),
    )


class Front(ctypes.Structure):
    """All that comes before the dense layers."""

    _fields_ = (
        ("stages", ctypes.c_void_p),
        ("bits", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("reader", ctypes.c_void_p),
        ("count", ctypes.c_int32),
        ("share", ctypes.c_int32),
    )


class Layer(ctypes.Structure):
    """A dense layer: where it is in the vector, its size, and whether ReLU and dropout follow."""

    _fields_ = (
        ("weight", ctypes.c_int64),
        ("bias", ctypes.c_int64),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("relu", ctypes.c_int32),
        ("share", ctypes.c_int32),
    )


class Rule(ctypes.Structure):
    """How a step is made of a gradient; what is not set does nothing."""

    _fields_ = (
        ("lr", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("velocity", ctypes.c_void_p),
        ("square", ctypes.c_void_p),
        ("anchor", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
        ("steps", ctypes.c_int64),
        ("momentum", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("clip", ctypes.c_float),
        ("strength", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("kind", ctypes.c_int32),
    )


@dataclass
class Sequence:
    """The layers of a network; `share` is that of dropout between what comes before the dense layers and them."""

    stages: list[Stage]
    share: int
    layers: list[Layer]
    reading: Reading | None = None

    def shape(self, height: int, width: int) -> None:
        """Let images be of this size."""
        for stage in self.stages:
            stage.height, stage.width = height, width
            height, width = height + 2 * stage.down - stage.high + 1, width + 2 * stage.right - stage.wide + 1
            if stage.pool:
                height, width = height // 2, width // 2
            if min(height, width) < 1:
                raise RuntimeError(
                    f"images are too small: nothing is left of them after filter {stage.high}x{stage.wide}"
                )
        if self.stages and height * width * self.stages[-1].filters != self.layers[0].inputs:
            found = f"{self.stages[-1].filters} x {height} x {width}"
            raise RuntimeError(f"dense layers for {self.layers[0].inputs} numbers are needed here for {found}")

    def drawn(self, count: int) -> int:
        """How many random words of 64 bits dropout takes in a step of so many examples: sixteen bits a number."""
        numbers = [(numbers_after(stage), stage.share) for stage in self.stages]
        numbers += [(self.layers[0].inputs, self.share), *((layer.outputs, layer.share) for layer in self.layers)]
        return sum(-(-count * each // 4) for each, share in numbers if share)


def numbers_after(stage: Stage) -> int:
    """How many numbers a stage makes of an image."""
    rows, columns = stage.height + 2 * stage.down - stage.high + 1, stage.width + 2 * stage.right - stage.wide + 1
    if stage.pool:
        rows, columns = rows // 2, columns // 2
    return int(rows * columns * stage.filters)


def dense_layers(network: nn.Module, layout: Layout) -> Sequence | None:
    """The network as dense layers, with convolutions or LSTM layers before them or without; None if it is anything
    else."""
    if layout.size != layout.trainable:
        return None
    places = {entry.name: entry for entry in layout.entries}
    found, flat, seen = Sequence([], 0, []), False, set[int]()
    for name, module in modules(network):
        if not usable(name, module, places, seen):
            return None
        if type(module) is nn.Identity or (type(module) is nn.Dropout and not module.training):
            continue
        if isinstance(module, nn.Flatten) and type(module) is nn.Flatten and not flat:
            flat = (module.start_dim, module.end_dim) == (1, -1)
            known = flat
        elif type(module) is Reader and not flat and not found.stages:
            found.reading = reading_of(name, module, places, seen)
            flat = known = found.reading is not None
        elif flat:
            known = add_dense(found, name, module, places)
        else:
            known = add_convolution(found.stages, name, module, places)
        if not known:
            return None
    if not found.layers or found.layers[-1].relu or found.layers[-1].share or len(found.stages) > STAGES:
        return None
    fits = found.reading is None or found.reading.hidden == found.layers[0].inputs
    return found if fits else None


def add_dense(found: Sequence, name: str, module: nn.Module, places: dict[str, Entry]) -> bool:
    """Add a layer behind the images, if it is known at this place."""
    last = found.layers[-1] if found.layers else None
    if isinstance(module, nn.Linear) and type(module) is nn.Linear:
        weight, bias = starts(name, module, places)
        found.layers.append(Layer(weight, bias, module.in_features, module.out_features))
    elif type(module) is nn.ReLU and last is not None and not last.relu and not last.share:
        last.relu = 1
    elif isinstance(module, nn.Dropout) and type(module) is nn.Dropout and 0 <= module.p < 1:
        if (found if last is None else last).share:
            return False
        (found if last is None else last).share = share(module)
    else:
        return False
    return True


def add_convolution(stages: list[Stage], name: str, module: nn.Module, places: dict[str, Entry]) -> bool:
    """Add a layer of images, if it is known at this place."""
    last = stages[-1] if stages else None
    if isinstance(module, nn.Conv2d) and type(module) is nn.Conv2d and plain(module) and module.stride == (1, 1):
        (high, wide), (down, right) = module.kernel_size, (int(side) for side in module.padding)
        weight, bias = starts(name, module, places)
        stages.append(Stage(weight, bias, module.in_channels, 0, 0, module.out_channels, high, wide, down, right))
    elif last is None or last.share:
        return False
    elif type(module) is nn.ReLU and not last.relu:
        last.relu = 1
    elif isinstance(module, nn.MaxPool2d) and type(module) is nn.MaxPool2d and halves(module) and not last.pool:
        last.pool = 1
    elif isinstance(module, nn.Dropout) and type(module) is nn.Dropout and 0 <= module.p < 1:
        last.share = share(module)
    else:
        return False
    return True


def starts(name: str, module: nn.Linear | nn.Conv2d, places: dict[str, Entry]) -> Iterator[int]:
    """Where weight and bias begin in the vector; -1 if there is no bias."""
    yield places[f"{name}.weight"].start
    yield -1 if module.bias is None else places[f"{name}.bias"].start


def share(module: nn.Dropout) -> int:
    """How many of 65,536 numbers it keeps (`layers.mask`); 0 if it keeps all."""
    return min(max(round((1 - module.p) * 65536), 1), 65535) if module.p else 0


def halves(module: nn.MaxPool2d) -> bool:
    """Whether it takes the largest of 2 x 2, and nothing unusual."""
    window = [module.kernel_size, module.kernel_size if module.stride is None else module.stride]
    rest = module.padding in (0, (0, 0)) and module.dilation in (1, (1, 1)) and not module.return_indices
    return all(side in (2, (2, 2)) for side in window) and rest and not module.ceil_mode
