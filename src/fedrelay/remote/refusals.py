"""Why a client does not take part, and what of that the server is told.

Nothing here imports torch: the process that Flower starts for every message does without it.
"""

from __future__ import annotations

from fedrelay.errors import BadInput


class AgainstPolicy(BadInput):
    """A client refuses, and says which rule of its own it keeps."""


class NotMeant(BadInput):
    """A run is not for this client, or not for its software; the words name nothing of its own."""


def told_of(error: Exception) -> str:
    """What the server is told of why a client does not take part: of reasons that lie in its data or its machine only
    that there are some, for they may name its files and quote its rows."""
    if isinstance(error, AgainstPolicy | NotMeant):
        return str(error)
    return "it cannot use its data or its disk as this run needs them; its own log says why"
