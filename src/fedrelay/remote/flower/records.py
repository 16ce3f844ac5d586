"""Our messages as Flower carries them: bytes in an array, and beside them what must be known before they are read.

Nothing here imports torch: a ClientApp process is new for every message, and only passes it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

BYTES, ABOUT = "fedrelay.message", "fedrelay.about"
KIND = "fedrelay"
"""How the bytes of our arrays are written: not as numpy's."""


@dataclass(frozen=True)
class Parcel:
    """A message, and of which run it is; or why there is none."""

    message: bytes = b""
    run: str = ""
    digest: str = ""
    declined: str = ""


def packed(parcel: Parcel) -> RecordDict:
    """As Flower takes it."""
    about = ConfigRecord({"run": parcel.run, "digest": parcel.digest, "declined": parcel.declined})
    array = Array(dtype="uint8", shape=(len(parcel.message),), stype=KIND, data=parcel.message)
    return RecordDict({BYTES: ArrayRecord({BYTES: array}), ABOUT: about})


def unpacked(content: RecordDict) -> Parcel:
    """What was packed; whatever is no parcel of ours raises a ValueError."""
    try:
        array, about = content.array_records[BYTES][BYTES], content.config_records[ABOUT]
        texts = {name: about[name] for name in ("run", "digest", "declined")}
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    if array.stype != KIND or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"its bytes are {array.stype!r:.40}")
    return Parcel(array.data, **{name: str(text) for name, text in texts.items()})
