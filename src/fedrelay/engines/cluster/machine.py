"""What of a machine decides the bits of a result: two that agree in it compute the same."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from importlib import metadata

import numpy as np
import torch
import torch.nn.functional as F

from fedrelay.system.threads import operator_threads

SETTINGS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
"""Variables of the environment by which libraries choose how they add."""


def facts() -> dict[str, str]:
    """Versions, instructions, settings, and what a few operators give here."""
    return {
        "fedrelay": metadata.version("fedrelay"),
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "processor": torch.backends.cpu.get_cpu_capability(),
        **{name: os.environ.get(name, "not set") for name in SETTINGS},
        "sums": sums(),
    }


def sums() -> str:
    """A hash of results in which the order of additions shows: products of matrices, a convolution, exponentials."""
    with operator_threads(1), torch.no_grad():
        x = torch.linspace(-1, 1, 96 * 193).view(96, 193).sin()
        images = torch.linspace(-1, 1, 8 * 3 * 16 * 16).view(8, 3, 16, 16).cos()
        weights = torch.linspace(-1, 1, 16 * 3 * 25).view(16, 3, 5, 5).sin()
        parts = (x @ x.T, F.conv2d(images, weights), F.log_softmax(x, 1), x.tanh().sum(), x.std(0))
        return hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()[:12]


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """In what two machines differ, and what to do about it; empty if in nothing."""
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    if not names:
        return ""
    words = ", ".join(f"{name} {there.get(name, 'unknown')} instead of {here.get(name, 'unknown')}" for name in names)
    if {"fedrelay", "Python", "torch", "NumPy"} & {*names}:
        return f"{words}: install the same versions on all machines"
    return (
        f"{words}: results would depend on where they are computed; start Ray on all machines, and this program, with "
        "ATEN_CPU_CAPABILITY=avx2 and MKL_CBWR=AVX2 in the environment"
    )
