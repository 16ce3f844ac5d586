"""Places in a document that programs fill in, between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fedrelay.errors import BadInput


def filled(text: str, content: Mapping[str, str]) -> str:
    """The document with the place of every name filled anew; one that it does not have is refused."""
    for name, made in content.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(text):
            raise BadInput(f"the document has no place for {name}: <!-- {name} --> … <!-- end -->")
        text = place.sub(lambda found, made=made: f"{found[1]}{made.rstrip()}\n{found[2]}", text)  # type: ignore[misc]
    return text
