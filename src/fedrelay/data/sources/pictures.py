"""One picture as numbers: depth is kept, and what is transparent is laid on a background or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources import dicom
from fedrelay.data.sources.checks import wrong
from fedrelay.errors import BadInput

Depth = Literal["bytes", "deep"]
"""8 bits a colour, kept as bytes; or grey with more than that (16 bits, floats, DICOM), kept as floats."""

ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


@dataclass(frozen=True)
class Look:
    """What a picture is, before it is decoded."""

    depth: Depth
    grey: bool
    frames: int = 1


def look(path: Path) -> Look:
    """From the beginning of the file; colours of more than 8 bits, of which a part would be lost, are refused."""
    if path.suffix.lower() in dicom.SUFFIXES:
        dicom.needed()
        return Look("deep", grey=True)
    from PIL import Image

    try:
        with Image.open(path) as opened:
            found = Look(depth_of(opened), opened.mode in ("1", "L", "LA"), getattr(opened, "n_frames", 1))
            bits = _bits(path, opened)
    except Exception as error:  # a damaged image makes its decoder fail in many ways
        raise damaged(path, error) from None
    if found.depth == "bytes" and bits > 8:
        raise wrong(path, "8 bits a colour, or grey", f"colours (or transparency) of {bits} bits; save it as either")
    return found


def depth_of(image: Any) -> Depth:
    return "deep" if image.mode in ("I", "F") or image.mode.startswith("I;16") else "bytes"


def _bits(path: Path, opened: Any) -> int:
    """Of one colour, where the format says it; Pillow itself keeps only 8 of them."""
    if opened.format == "PNG":
        with path.open("rb") as file:
            return file.read(25)[24]
    if opened.format == "TIFF":
        return int(max(opened.tag_v2.get(258, (8,))))
    return 8


def damaged(where: Path | str, error: Exception) -> BadInput:
    return wrong(where, "an image", f"a damaged or other file ({type(error).__name__}: {error})")


def decoded(path: Path, size: int, background: str | None) -> NDArray[Any]:
    """A file as (size, size, 3) bytes, or as (size, size, 1) floats where it is deep."""
    from PIL import Image

    if path.suffix.lower() in dicom.SUFFIXES:
        return pixels(path, Image.fromarray(dicom.grey_values(path)), size, background)
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * size, 2 * size))
            opened.load()
            return pixels(path, opened, size, background)
    except BadInput:
        raise
    except Exception as error:
        raise damaged(path, error) from None


def pixels(where: Path | str, image: Any, size: int | None, background: str | None, mode: str = "RGB") -> NDArray[Any]:
    """A picture of Pillow as (height, width, channels): bytes in this mode, or floats where it is deep."""
    from PIL import Image

    if depth_of(image) == "deep":
        values = np.asarray(image).astype(np.float32)
        if not np.isfinite(values).all():
            raise wrong(where, "a picture of numbers", f"{int((~np.isfinite(values)).sum())} that are NaN or infinite")
        if size is not None and values.shape != (size, size):
            resized = Image.fromarray(values).resize((size, size), Image.Resampling.BILINEAR)
            values = np.asarray(resized, dtype=np.float32)
        return values[..., None]
    flat = laid(where, image, background).convert(mode)
    if size is not None and flat.size != (size, size):
        flat = flat.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    found = np.asarray(flat, dtype=np.uint8)
    return found[..., None] if found.ndim == 2 else found


def laid(where: Path | str, image: Any, background: str | None) -> Any:
    """A picture without transparency: on a background, if some of it is transparent."""
    from PIL import Image

    if image.mode not in ALPHA and "transparency" not in image.info:
        return image
    whole = image.convert("RGBA")
    least = whole.getchannel("A").getextrema()[0]
    if least == 255:
        return whole.convert("RGB")
    if background is None:
        hint = 'background = "white" (or another colour) lays it on one'
        raise wrong(where, "a picture without transparent parts", f"some (alpha down to {least} of 255); {hint}")
    return Image.alpha_composite(Image.new("RGBA", whole.size, colour_of(background)), whole).convert("RGB")


def colour_of(background: str) -> tuple[int, int, int]:
    """A colour by its name or as #rrggbb."""
    from PIL import ImageColor

    try:
        red, green, blue = ImageColor.getrgb(background)[:3]
    except (ValueError, TypeError, AttributeError):
        raise BadInput(f"background must be a colour such as white or #ffffff, not {background!r}") from None
    return red, green, blue
