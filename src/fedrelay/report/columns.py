"""How wide a figure is in a journal, and how large its letters: what the page and `fedrelay report --figures` offer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A width in inches and the size of letters in points, as a publisher asks for them."""

    words: str
    width: float
    points: float


COLUMNS: dict[str, Column] = {
    "ieee": Column("IEEE, one column (3.5 in, 8 pt)", 3.5, 8),
    "ieee-wide": Column("IEEE, two columns (7.16 in, 8 pt)", 7.16, 8),
    "acm": Column("ACM, one column (3.33 in, 8 pt)", 3.33, 8),
    "acm-wide": Column("ACM, two columns (7 in, 8 pt)", 7.0, 8),
    "elsevier": Column("Elsevier, one column (90 mm, 7 pt)", 90 / 25.4, 7),
    "elsevier-wide": Column("Elsevier, two columns (190 mm, 7 pt)", 190 / 25.4, 7),
    "nature": Column("Nature, one column (89 mm, 7 pt)", 89 / 25.4, 7),
    "nature-wide": Column("Nature, two columns (183 mm, 7 pt)", 183 / 25.4, 7),
    "lncs": Column("Springer LNCS (122 mm, 9 pt)", 122 / 25.4, 9),
    "neurips": Column("NeurIPS, ICLR (5.5 in, 9 pt)", 5.5, 9),
}
HEIGHT = 0.62
"""Of a figure, by its width."""
