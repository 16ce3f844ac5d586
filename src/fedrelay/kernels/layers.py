"""Known layers with their gradients written out, for one model or for a stack of models (one a row) at once.

Small networks spend most of their time not in arithmetic but between operators, in autograd above all. Here a network
that is a plain sequence of known layers runs without it, and writes every gradient straight to its place in the flat
vector. With several models everything has a leading dimension of models: batches are (models, batch, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from typing import Protocol, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from fedrelay.kernels.winograd import Filtering
from fedrelay.models.network import Network
from fedrelay.vectors import Entry, Layout

# Overloads by name, because to look them up at every call costs more than a small operator; the first two, which torch
# binds itself, are quicker still.
_log_softmax = torch._log_softmax
_log_softmax_backward_data = torch._log_softmax_backward_data
_convolution_backward = torch.ops.aten.convolution_backward.default
_max_pool2d_with_indices = torch.ops.aten.max_pool2d_with_indices.default
_max_pool2d_with_indices_backward = torch.ops.aten.max_pool2d_with_indices_backward.default
_nll_loss_backward = torch.ops.aten.nll_loss_backward.default
_nll_loss_forward = torch.ops.aten.nll_loss_forward.default
_threshold_backward = torch.ops.aten.threshold_backward.default

Tensor: TypeAlias = torch.Tensor
Place: TypeAlias = Callable[[str], tuple[Tensor, Tensor]]
"""The numbers of a parameter and of its gradient, (models, size) each, by name."""

PADDING = -100
"""A target that does not count."""


class Layer(Protocol):
    """A layer at its place in a sequence. `backward` comes after `forward` of the same batch."""

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor: ...

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        """The gradient of the input. That of the layer's own parameters is written to its place; or, with a rate, they
        take a step against it, and its place is only scratch."""
        ...


class Linear:
    """A product with a matrix of its own for every model."""

    def __init__(self, module: nn.Linear, place: Place, name: str, *, first: bool) -> None:
        outputs, inputs = module.weight.shape
        weight, gradient = place(f"{name}.weight")
        self._single, self._first = len(weight) == 1, first
        shape = (outputs, inputs) if self._single else (len(weight), outputs, inputs)
        self._weight, self._gradient = weight.view(shape), gradient.view(shape)
        self._across = self._weight.mT
        self._bias: Tensor | None = None
        if module.bias is not None:
            bias, bias_gradient = place(f"{name}.bias")
            self._bias, self._bias_gradient = bias if self._single else bias.unsqueeze(1), bias_gradient

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        self._x = x
        if self._single:
            return torch.mm(x, self._across) if self._bias is None else torch.addmm(self._bias, x, self._across)
        return torch.bmm(x, self._across) if self._bias is None else torch.baddbmm(self._bias, x, self._across)

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        product = torch.mm if self._single else torch.bmm
        dx = dy if self._first else product(dy, self._weight)
        if lr is None:
            product(dy.mT, self._x, out=self._gradient)
        elif self._single:
            self._weight.addmm_(dy.mT, self._x, alpha=-lr)
        else:
            self._weight.baddbmm_(dy.mT, self._x, alpha=-lr)
        if self._bias is None:
            return dx
        if lr is None:
            torch.sum(dy, -2, keepdim=self._single, out=self._bias_gradient)
        elif self._single:
            self._bias.addmm_(_ones(dy.shape[0], dy.device), dy, alpha=-lr)
        else:
            self._bias.add_(torch.sum(dy, -2, keepdim=True), alpha=-lr)
        return dx


@lru_cache(64)
def _ones(count: int, device: torch.device) -> Tensor:
    return torch.ones(1, count, device=device)


class Convolution:
    """For one model, torch's convolution, or one with fewer multiplications where there are many; for several, one
    product of matrices a model over all windows."""

    def __init__(self, module: nn.Conv2d, place: Place, name: str, *, first: bool) -> None:
        weight, gradient = place(f"{name}.weight")
        self._models, self._shape, self._first = len(weight), tuple(module.weight.shape), first
        entry = Entry("", 0, self._shape)
        self._one, self._one_gradient = entry.view(weight[0]), entry.view(gradient[0])
        self._flat, self._flat_gradient = weight, gradient
        self._weight, self._gradient = (part.view(self._models, self._shape[0], -1) for part in (weight, gradient))
        self._stride, self._padding = _pair(module.stride), _pair(module.padding)  # type: ignore[arg-type]
        self._bias: Tensor | None = None
        if module.bias is not None:
            self._bias, self._bias_gradient = place(f"{name}.bias")
        self._filtering: Filtering | None = None
        # Where the operator library has no such convolutions of its own.
        if self._models == 1 and not first and self._stride == (1, 1) and weight.device.type == "cpu":
            weight, gradient = (part.permute(0, 2, 3, 1) for part in (self._one, self._one_gradient))
            self._filtering = Filtering(weight, gradient, self._padding)

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        if self._models > 1:
            return self._stacked(x)
        bias = None if self._bias is None else self._bias[0]
        self._x: Tensor | None = None
        if self._filtering is not None:
            y = self._filtering.forward(x, bias)
            if y is not None:
                return y
        self._x = x
        return functional.conv2d(x, self._one, bias, self._stride, self._padding)

    def _stacked(self, x: Tensor) -> Tensor:
        filters, kernels, high, wide = self._shape
        down, right = self._padding
        # Channels last: a line of a window is then one piece of memory.
        inside = functional.pad(x.permute(0, 1, 3, 4, 2), (0, 0, right, right, down, down)).contiguous()
        self._inside = inside.shape
        windows = inside.unfold(2, high, self._stride[0]).unfold(3, wide, self._stride[1])  # (m, b, h, w, c, kh, kw)
        self._out = models, batch, rows, columns = windows.shape[:4]
        self._windows = windows.permute(0, 1, 2, 3, 5, 6, 4).reshape(models, -1, high * wide * kernels)
        if self._bias is None:
            y = torch.bmm(self._windows, self._weight.mT)
        else:
            y = torch.baddbmm(self._bias.unsqueeze(1), self._windows, self._weight.mT)
        return y.view(models, batch, rows, columns, filters).permute(0, 1, 4, 2, 3)

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        dx = self._differentiate(dy)
        if lr is not None:
            self._flat.add_(self._flat_gradient, alpha=-lr)
            if self._bias is not None:
                self._bias.add_(self._bias_gradient, alpha=-lr)
        return dx

    def _differentiate(self, dy: Tensor) -> Tensor:
        if self._models > 1:
            return self._stacked_backward(dy)
        if self._filtering is not None and self._x is None:
            if self._bias is not None:
                torch.sum(dy, (0, 2, 3), out=self._bias_gradient[0])
            return self._filtering.backward(dy)
        sizes = None if self._bias is None else [self._shape[0]]
        wanted = [not self._first, True, sizes is not None]
        stride, padding = list(self._stride), list(self._padding)
        dx, dw, db = _convolution_backward(
            dy, self._x, self._one, sizes, stride, padding, [1, 1], False, [0, 0], 1, wanted
        )
        self._one_gradient.copy_(dw)
        if self._bias is not None:
            self._bias_gradient[0].copy_(db)
        return dy if self._first else dx

    def _stacked_backward(self, dy: Tensor) -> Tensor:
        models, batch, rows, columns = self._out
        filters, kernels, high, wide = self._shape
        flat = dy.permute(0, 1, 3, 4, 2).reshape(models, -1, filters)
        torch.bmm(flat.mT, self._windows, out=self._gradient)
        if self._bias is not None:
            torch.sum(flat, 1, out=self._bias_gradient)
        if self._first:
            return dy
        windows = torch.bmm(flat, self._weight).view(models, batch, rows, columns, high, wide, kernels)
        inside = dy.new_zeros(self._inside)
        (by, along), (down, right) = self._stride, self._padding
        for i in range(high):
            for j in range(wide):
                inside[:, :, i : i + by * rows : by, j : j + along * columns : along] += windows[:, :, :, :, i, j]
        tall, broad = self._inside[2:4]
        return inside[:, :, down : tall - down, right : broad - right].permute(0, 1, 4, 2, 3)


class Relu:
    """Works in place: nothing before it needs what it overwrites."""

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        self._y = x.relu_()
        return self._y

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        dx: Tensor = _threshold_backward(dy, self._y, 0)
        return dx


class MaxPool:
    """The largest of every window."""

    def __init__(self, module: nn.MaxPool2d, *, single: bool) -> None:
        stride = module.kernel_size if module.stride is None else module.stride
        self._window = [list(_pair(part)) for part in (module.kernel_size, stride, module.padding, module.dilation)]
        self._ceil, self._single = module.ceil_mode, single

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        self._x = x if self._single else x.flatten(0, 1)
        y: Tensor
        y, self._where = _max_pool2d_with_indices(self._x, *self._window, self._ceil)
        return y if self._single else y.view(*x.shape[:2], *y.shape[1:])

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        flat = dy if self._single else dy.flatten(0, 1)
        dx: Tensor = _max_pool2d_with_indices_backward(flat, self._x, *self._window, self._ceil, self._where)
        return dx if self._single else dx.view(*dy.shape[:2], *dx.shape[1:])


class Dropout:
    """Draws from torch's generator, so it is for one model only: every visit has its own."""

    def __init__(self, module: nn.Dropout) -> None:
        self._kept = 1 - module.p

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        self._mask = mask(x, self._kept) if training and self._kept < 1 else None
        return x if self._mask is None else x * self._mask

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        return dy if self._mask is None else dy * self._mask


def mask(x: Tensor, kept: float) -> Tensor:
    """1 / kept for about this share of the numbers and 0 for the others, by sixteen random bits each: quicker than
    torch's own, which draws a whole number for each. The share is rounded to a 65,536th. On a GPU it is torch's own."""
    if x.device.type != "cpu":
        return torch.empty_like(x).bernoulli_(kept).mul_(1 / kept)
    share = min(max(round(kept * 65536), 1), 65535)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    found = torch.empty_like(x)
    drawn = bits.view(torch.int16)[: x.numel()].as_strided(found.shape, found.stride())  # in the order of memory
    return torch.lt(drawn, share - 32768, out=found).mul_(65536 / share)


class Flatten:
    """All numbers of an example in one row."""

    def __init__(self, *, single: bool) -> None:
        self._from = 1 if single else 2

    def forward(self, x: Tensor, /, *, training: bool) -> Tensor:
        self._shape, self._images = x.shape, x.ndim == 4 and not x.is_contiguous()
        return x.flatten(self._from)

    def backward(self, dy: Tensor, lr: float | None, /) -> Tensor:
        dx = dy.view(self._shape)
        return dx.contiguous(memory_format=torch.channels_last) if self._images else dx  # as what comes before is laid


class Sequence:
    """A whole network of known layers and its cross-entropy: fills a flat gradient from a batch."""

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = layers
        own = [number for number, layer in enumerate(layers) if isinstance(layer, Linear | Convolution)]
        self._backwards = layers[own[0] :][::-1]  # what comes before has nothing to learn
        self.draws = any(isinstance(layer, Dropout) for layer in layers)

    def differentiate(self, x: Tensor, y: Tensor, *, training: bool = True, lr: float | None = None) -> Tensor:
        """Write the gradients of the mean loss of every model, and return those losses; or, with a rate, let the
        weights take a step, which is quicker than to write gradients down first.

        For one model x is (batch, ...) and y (batch); for several (models, batch, ...) and (models, batch), with
        PADDING where a model has fewer examples than the others.
        """
        with torch.inference_mode():  # operators need not look whether anybody wants a gradient
            for layer in self._layers:
                x = layer.forward(x, training=training)
            losses, dy = cross_entropy(x, y)
            for layer in self._backwards:
                dy = layer.backward(dy, lr)
        return losses.clone()  # what was made in there may not be changed out here


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss of every model, and the gradient of the logits."""
    if y.ndim == 1:
        logs = _log_softmax(logits, 1, False)
        loss, total = _nll_loss_forward(logs, y, None, 1, PADDING)
        into = _nll_loss_backward(_one(logits.device), logs, y, None, 1, PADDING, total)
        return loss, _log_softmax_backward_data(into, logs, 1, logits.dtype)
    logs, targets = _log_softmax(logits.flatten(0, 1), 1, False), y.reshape(-1)
    each, total = _nll_loss_forward(logs, targets, None, 0, PADDING)
    # To look would be to wait for a GPU, in every step.
    if logits.device.type != "cpu" or int(targets.min()) == PADDING:
        share = (y != PADDING).sum(1, keepdim=True).to(logits.dtype).reciprocal_()
        shares, losses = share.expand(y.shape).reshape(-1), (each.view(y.shape) * share).sum(1)
    else:  # nearly always, and much shorter
        shares, losses = _shares(*y.shape, y.device), each.view(y.shape).mean(1)
    into = _nll_loss_backward(shares, logs, targets, None, 0, PADDING, total)
    return losses, _log_softmax_backward_data(into, logs, 1, logits.dtype).view(logits.shape)


@lru_cache(64)
def _shares(models: int, size: int, device: torch.device) -> Tensor:
    """What every example counts in the mean of its model."""
    return torch.full((models * size,), 1 / size, device=device)


@lru_cache(64)
def _one(device: torch.device) -> Tensor:
    return torch.ones((), device=device)


def written_out(network: nn.Module, layout: Layout, weights: Tensor, gradient: Tensor) -> Sequence | None:
    """The network over these vectors, (models, trainable) each; None if it is not a plain sequence of known layers, or
    not one that several models can run at once."""
    if layout.size != layout.trainable:
        return None
    found: list[Layer] = []
    places = {entry.name: slice(entry.start, entry.start + entry.size) for entry in layout.entries}

    def place(name: str) -> tuple[Tensor, Tensor]:
        return weights[:, places[name]], gradient[:, places[name]]

    first, images, seen, single = True, True, set[int](), len(weights) == 1
    for name, module in modules(network):
        kind = type(module)
        if not usable(name, module, places, seen):
            return None
        if kind is nn.Identity or (kind is nn.Dropout and not module.training):  # its owner put it in .eval()
            continue
        if isinstance(module, nn.Linear) and kind is nn.Linear and not images:
            found.append(Linear(module, place, name, first=first))
            first = False
        elif isinstance(module, nn.Conv2d) and kind is nn.Conv2d and images and plain(module):
            found.append(Convolution(module, place, name, first=first))
            first = False
        elif kind is nn.ReLU and not first:
            found.append(Relu())
        elif isinstance(module, nn.MaxPool2d) and kind is nn.MaxPool2d and images and not first:
            found.append(MaxPool(module, single=single))
        elif isinstance(module, nn.Dropout) and kind is nn.Dropout and single and 0 <= module.p < 1:
            found.append(Dropout(module))
        elif isinstance(module, nn.Flatten) and kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            found.append(Flatten(single=single))
            images = False
        else:
            return None
    return None if first or images else Sequence(found)


def modules(network: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers in the order in which they run, if the network is a sequence; else itself."""
    if hooked(network):
        yield name, network
        return
    dot = f"{name}." if name else ""
    if type(network) is Network:
        yield from modules(network.body, f"{dot}body")
        yield from modules(network.head, f"{dot}head")
    elif type(network) is nn.Sequential:
        for number, part in enumerate(network):
            yield from modules(part, f"{dot}{number}")
    else:
        yield name, network


def usable(name: str, module: nn.Module, places: Container[str], seen: set[int]) -> bool:
    """Whether a layer stands at one place, with parameters of its own and nothing beside it; `seen` gets to know it."""
    own = module.named_parameters(recurse=False, remove_duplicate=False)
    tied = any(f"{name}.{key}" not in places for key, _ in own)
    new = id(module) not in seen and not hooked(module) and not tied
    seen.add(id(module))
    return new


def hooked(module: nn.Module) -> bool:
    """Whether something of the caller's runs beside the layer."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def plain(module: nn.Conv2d) -> bool:
    """A convolution without dilation, groups or unusual padding."""
    usual = module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return usual and module.groups == 1 and module.dilation == (1, 1)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
