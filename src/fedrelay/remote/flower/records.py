"""Our messages as Flower carries them: bytes in an array, and beside them what must be known before they are read.

Nothing here imports torch: a ClientApp process is new for every message, and only passes it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

BYTES, ABOUT = "fedrelay.message", "fedrelay.about"
KIND = "fedrelay"
"""How the bytes of our arrays are written: not as numpy's."""


KNOWN = "known"
"""In place of what a client is told of a run, if it has it already."""
LONGEST = 2000
"""Characters of why a client does not take part; run and digest are shorter."""
LONGEST_PROOF = 16_000
"""The same of a certificate with a signature: a server may have many names."""


TEXTS = ("run", "digest", "declined", "proof")
"""What stands beside a message."""


@dataclass(frozen=True)
class Parcel:
    """A message, and of which run it is; or why there is none.

    Args:
        proof: by which a server proves that it is its message.
        origin: Flower's number of the run in which it has come, which no message says of itself.
    """

    message: bytes = b""
    run: str = ""
    digest: str = ""
    declined: str = ""
    proof: str = ""
    origin: int = 0


def packed(parcel: Parcel) -> RecordDict:
    """As Flower takes it."""
    about = ConfigRecord({name: getattr(parcel, name) for name in TEXTS})
    array = Array(dtype="uint8", shape=(len(parcel.message),), stype=KIND, data=parcel.message)
    return RecordDict({BYTES: ArrayRecord({BYTES: array}), ABOUT: about})


def unpacked(content: RecordDict) -> Parcel:
    """What was packed; whatever is no parcel of ours raises a ValueError."""
    try:
        array, about = content.array_records[BYTES][BYTES], content.config_records[ABOUT]
        texts = {name: about[name] for name in TEXTS}
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    for name, text in texts.items():
        most = LONGEST_PROOF if name == "proof" else LONGEST
        if isinstance(text, str) and len(text) > most:
            raise ValueError(f"it says more than {most} characters of {'its proof' if name == 'proof' else 'why'}")
    if array.stype != KIND or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"its bytes are {array.stype!r:.40}")
    run, digest, declined, proof = (str(texts[name]) for name in TEXTS)
    return Parcel(array.data, run, digest, declined, proof)
