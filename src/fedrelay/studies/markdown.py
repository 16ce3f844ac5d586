"""Tables for documents."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int | None = None) -> str:
    """A table in Markdown; its first `words` columns go to the left and the others, figures, to the right."""
    aligned = ["---"] * len(heads) if words is None else [":--"] * words + ["--:"] * (len(heads) - words)
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in (heads, aligned, *rows)
    )
