"""A client's whole training outside the interpreter, for networks that are a plain sequence of dense layers.

`dense.c` is compiled when fedrelay is installed where there is a C compiler; without it everything runs as ever. It
rounds otherwise than the operators of PyTorch do, so whoever takes it says so (`[engine] native = true`).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from fedrelay.data.nests import Nest
from fedrelay.errors import BadInput
from fedrelay.kernels.layers import modules, usable
from fedrelay.types import Vector
from fedrelay.vectors import Layout

ABI = 2
"""Of the functions in `dense.c`; a library of another one is not taken."""
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = Path(__file__).with_name(f"dense.lib{SUFFIX}")
"""Its name has a dot, so that nobody takes it for a module of Python."""
REMEDY = "install a C compiler, then fedrelay again (pip install --force-reinstall --no-deps fedrelay)"


class Layer(ctypes.Structure):
    """A dense layer: where it is in the vector, its size, and whether ReLU follows."""

    _fields_ = (
        ("weight", ctypes.c_int64),
        ("bias", ctypes.c_int64),
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("relu", ctypes.c_int32),
    )


class Rule(ctypes.Structure):
    """How a step is made of a gradient; what is not set does nothing."""

    _fields_ = (
        ("lr", ctypes.c_double),
        ("velocity", ctypes.c_void_p),
        ("square", ctypes.c_void_p),
        ("anchor", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
        ("steps", ctypes.c_int64),
        ("momentum", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("clip", ctypes.c_float),
        ("strength", ctypes.c_float),
        ("beta1", ctypes.c_float),
        ("beta2", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("kind", ctypes.c_int32),
    )


KINDS = {"sgd": 0, "adam": 1, "adamw": 2}


@dataclass(frozen=True)
class Found:
    """The compiled library, and whose products of matrices it uses."""

    library: ctypes.CDLL
    sgemm: int
    blas: str


@cache
def found() -> Found | str:
    """The library, ready for use; or why there is none, in words."""
    if not LIBRARY.exists():
        return "fedrelay was installed without a C compiler"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.dense_layer_bytes.restype = library.dense_rule_bytes.restype = ctypes.c_int64
        sizes = library.dense_layer_bytes(), library.dense_rule_bytes()
        fits = library.dense_abi() == ABI and sizes == (ctypes.sizeof(Layer), ctypes.sizeof(Rule))
    except (OSError, AttributeError) as error:
        return f"{LIBRARY.name} cannot be loaded: {error}"
    if not fits:
        return f"{LIBRARY.name} is of another version of fedrelay: install fedrelay again"
    blas = of_torch() or of_scipy()
    if blas is None:
        return "neither PyTorch nor SciPy has a product of matrices to call"
    pointer, word, whole = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.dense_scratch.restype, library.dense_scratch.argtypes = whole, (pointer, word, word)
    library.dense_descend.restype = ctypes.c_double
    library.dense_descend.argtypes = (
        *(pointer, pointer, word, pointer, pointer, whole),
        *(pointer, pointer, pointer, whole, word, pointer, pointer),
    )
    return Found(library, *blas)


def of_torch() -> tuple[int, str] | None:
    """The product of matrices of the BLAS that PyTorch brings, where it lets others call it."""
    name = {"win32": "torch_cpu.dll", "darwin": "libtorch_cpu.dylib"}.get(sys.platform, "libtorch_cpu.so")
    try:
        sgemm = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name)).sgemm_
    except (OSError, AttributeError):
        return None
    return ctypes.cast(sgemm, ctypes.c_void_p).value or 0, "PyTorch's BLAS"


def of_scipy() -> tuple[int, str] | None:
    """The product of matrices of the BLAS that SciPy brings, in one thread from now on; None if it does not count in
    whole numbers of 32 bits, as `dense.c` does."""
    from scipy.linalg import cython_blas

    try:
        capsule = cython_blas.__pyx_capi__["sgemm"]
    except (AttributeError, KeyError):
        return None
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    signature = api.PyCapsule_GetName(capsule)
    if b"int *" not in signature:
        return None
    for library in ThreadpoolController().lib_controllers:  # torch's number of threads means nothing to it
        if "scipy" in library.filepath:
            library.set_num_threads(1)
    return api.PyCapsule_GetPointer(capsule, signature), "SciPy's BLAS"


def available() -> bool:
    """Whether there is a library to use."""
    return isinstance(found(), Found)


def check() -> None:
    """Refuse to go on without the library."""
    reason = found()
    if isinstance(reason, str):
        raise BadInput(
            f"native = true needs the compiled part of fedrelay, and {reason}: {REMEDY}. A run that was begun with it "
            "(`auto` may have chosen it) goes on where it is there; a new run without native gives close numbers, but "
            "not the same bits"
        )


def dense_layers(network: nn.Module, layout: Layout) -> list[Layer] | None:
    """The network as dense layers; None if it is anything else."""
    if layout.size != layout.trainable:
        return None
    places = {entry.name: entry for entry in layout.entries}
    result: list[Layer] = []
    flat, seen = False, set[int]()
    for name, module in modules(network):
        kind = type(module)
        if not usable(name, module, places, seen):
            return None
        if kind is nn.Identity or (kind is nn.Dropout and not module.training):
            continue
        if isinstance(module, nn.Linear) and kind is nn.Linear and flat:
            bias = -1 if module.bias is None else places[f"{name}.bias"].start
            result.append(Layer(places[f"{name}.weight"].start, bias, module.in_features, module.out_features, 0))
        elif kind is nn.ReLU and result and not result[-1].relu:
            result[-1].relu = 1
        elif isinstance(module, nn.Flatten) and kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            if result:
                return None
            flat = True
        else:
            return None
    return result if result and not result[-1].relu else None


class Dense:
    """A network of dense layers over these vectors, which trains without the interpreter."""

    def __init__(self, layers: Sequence[Layer], weights: Vector, gradient: Vector) -> None:
        library = found()
        assert isinstance(library, Found)
        self._layers = (Layer * len(layers))(*layers)
        self._found, self._weights, self._gradient = library, weights, gradient
        self._where = ctypes.addressof(self._layers), len(layers), weights.data_ptr(), gradient.data_ptr(), len(weights)
        self._scratch, self._batch = torch.empty(0), 0

    def descend(
        self, x: torch.Tensor, y: torch.Tensor, batch: int, rule: Rule, which: torch.Tensor | None = None
    ) -> float:
        """Go through these examples in batches, with a step of this kind each; the sum of their losses, each as it was
        before its step. `which` chooses rows of both, that must be laid row by row then."""
        if batch != self._batch:
            needed = self._found.library.dense_scratch(*self._where[:2], batch)
            self._scratch, self._batch = torch.empty(needed), batch
        if which is None:
            x, y = x.flatten(1).contiguous(), y.to(torch.int64).contiguous()
            inputs = self._layers[0].inputs
            if x.dtype != torch.float32 or x.shape[1] != inputs or y.shape != x.shape[:1]:
                found = f"{tuple(x.shape)} of {x.dtype} with targets {tuple(y.shape)}"
                raise RuntimeError(f"inputs of {inputs} numbers of float32 and a class each are needed, not {found}")
        total: float = self._found.library.dense_descend(
            *(self._found.sgemm, *self._where, x.data_ptr(), y.data_ptr()),
            *(None if which is None else which.data_ptr(), len(y) if which is None else len(which), batch),
            *(ctypes.addressof(rule), self._scratch.data_ptr()),
        )
        if math.isnan(total):
            self._check(y if which is None else y[which])
        return total

    def takes(self, x: Nest, y: Nest) -> bool:
        """Whether rows can be taken from these tensors as they lie in memory."""
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return False
        alike = x.dtype == torch.float32 and y.dtype == torch.int64 and x.is_contiguous() and y.is_contiguous()
        return alike and (x.ndim < 4 or x.shape[3] == 1) and x.numel() == y.shape[0] * self._layers[0].inputs

    def _check(self, y: torch.Tensor) -> None:
        classes = self._layers[len(self._layers) - 1].outputs
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
            raise IndexError(f"targets from {int(y.min())} to {int(y.max())}, but there are {classes} classes")
