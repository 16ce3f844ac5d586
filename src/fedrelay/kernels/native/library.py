"""The compiled library: where it is, whether it fits, and whose products of matrices it uses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from fedrelay.errors import BadInput
from fedrelay.kernels.native.recurrent import Cell, Reading
from fedrelay.kernels.native.sequence import Front, Layer, Rule, Stage
from fedrelay.kernels.native.visits import WholeVisit

ABI = 13
"""Of the functions in the library; a library of another one is not taken."""
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = Path(__file__).with_name(f"dense.lib{SUFFIX}")
"""Its name has a dot, so that nobody takes it for a module of Python."""
PARTS = Layer, Rule, Stage, Front, Cell, Reading, WholeVisit
REMEDY = "install a C compiler, then fedrelay again (pip install --force-reinstall --no-deps fedrelay)"


@dataclass(frozen=True)
class Found:
    """The compiled library, and whose products of matrices it uses."""

    library: ctypes.CDLL
    sgemm: int
    blas: str
    draws: bool
    """Whether it draws the orders that NumPy draws."""


@cache
def found() -> Found | str:
    """The library, ready for use; or why there is none, in words."""
    if not LIBRARY.exists():
        return "fedrelay was installed without a C compiler"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        sizes, fits = (ctypes.c_int64 * len(PARTS))(), library.dense_abi() == ABI
        if fits:  # one of another version may have more of them to tell
            library.dense_bytes(sizes)
            fits = tuple(sizes) == tuple(map(ctypes.sizeof, PARTS))
    except (OSError, AttributeError) as error:
        return f"{LIBRARY.name} cannot be loaded: {error}"
    if not fits:
        return f"{LIBRARY.name} is of another version of fedrelay: install fedrelay again"
    blas = of_torch() or of_scipy()
    if blas is None:
        return "neither PyTorch nor SciPy has a product of matrices to call"
    pointer, word, whole = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.dense_scratch.restype, library.dense_scratch.argtypes = whole, (pointer, word, word, word)
    library.front_scratch.restype, library.front_scratch.argtypes = whole, (pointer, word)
    library.reader_scratch.restype, library.reader_scratch.argtypes = whole, (pointer, word)
    library.front_look.restype, library.front_look.argtypes = None, (pointer, pointer, pointer, whole, pointer)
    library.winograd_scratch.restype, library.winograd_scratch.argtypes = whole, (pointer,)
    library.winograd_filter.restype, library.winograd_filter.argtypes = None, (pointer, word, *[pointer] * 4)
    library.winograd_gradient.restype, library.winograd_gradient.argtypes = None, (pointer,) * 5
    library.dense_descend.restype = ctypes.c_double
    library.dense_descend.argtypes = (
        *(pointer, pointer, pointer, word, pointer, pointer, whole),
        *(pointer, pointer, pointer, whole, word, pointer, pointer, pointer, whole),
    )
    library.dense_visits.restype = whole
    library.dense_visits.argtypes = (
        *(pointer, pointer, pointer, word, pointer, whole, pointer, pointer, pointer, whole, pointer),
        *(pointer, whole, pointer, whole, ctypes.c_double),
    )
    library.draw_bytes.restype, library.draw_bytes.argtypes = whole, ()
    library.draw_pass.restype = None
    library.draw_pass.argtypes = (pointer, word, ctypes.c_uint64, pointer, whole, pointer)
    return Found(library, *blas, draws_as_numpy(library))


def draws_as_numpy(library: ctypes.CDLL) -> bool:
    """Whether orders are those of the NumPy that is here: another version of it might draw others."""
    if not library.draw_bytes():
        return False
    rows = torch.arange(100)
    for seed in (0, 7, 2**64 - 5):
        draw, mine = np.random.Generator(np.random.PCG64(seed)), drawn(library, seed, rows)
        if not all(np.array_equal(next(mine).numpy(), draw.permutation(len(rows))) for _ in range(3)):
            return False
    return True


def drawn(library: ctypes.CDLL, seed: int, rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """These rows again and again, in a fresh order each time."""
    stream, size = ctypes.create_string_buffer(library.draw_bytes()), len(rows)
    begin = True
    while True:
        order = torch.empty_like(rows)
        library.draw_pass(stream, begin, seed, rows.data_ptr(), size, order.data_ptr())
        begin = False
        yield order


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
