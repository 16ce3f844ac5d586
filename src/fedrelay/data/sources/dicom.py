"""DICOM pictures (X-rays, slices of a scan), by pydicom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources.checks import wrong
from fedrelay.errors import BadInput

SUFFIXES = frozenset({".dcm", ".dicom", ".ima"})


def needed() -> Any:
    """pydicom, or what to do to get it."""
    try:
        import pydicom
    except ImportError:
        raise BadInput('reading DICOM pictures needs pydicom: pip install "fedrelay[dicom]"') from None
    return pydicom


def grey_values(path: Path) -> NDArray[np.float32]:
    """One grey picture in the unit that the file says (Hounsfield in a CT), bright where there is much of it."""
    pydicom = needed()
    try:
        dataset = pydicom.dcmread(path)
        stored = np.asarray(dataset.pixel_array)
    except Exception as error:  # a damaged file makes its decoder fail in many ways
        raise wrong(path, "a DICOM picture", f"a damaged or other file ({type(error).__name__}: {error})") from None
    if stored.ndim != 2:
        found = f"{getattr(dataset, 'PhotometricInterpretation', '')} of shape {stored.shape}"
        raise wrong(path, "one grey DICOM picture", f"{found}; save every frame as a file of its own")
    values = stored.astype(np.float32)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":  # its largest value is black
        signed = bool(dataset.get("PixelRepresentation", 0))
        values = (-1.0 if signed else 2.0 ** int(dataset.BitsStored) - 1) - values
    slope, intercept = float(dataset.get("RescaleSlope", 1)), float(dataset.get("RescaleIntercept", 0))
    return np.asarray(values * slope + intercept, dtype=np.float32)
