"""From files and frames to Arrow: delimiter and encoding are found out, nothing is guessed about columns yet."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrelay.data.sources.checks import wrong
from fedrelay.errors import BadInput

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".parquet", ".pq")
DELIMITERS = (",", ";", "\t", "|")
SAMPLE = 200
"""So many lines tell a delimiter."""


@dataclass(frozen=True)
class Raw:
    """A table as it was read."""

    name: str
    table: Any
    delimiter: str | None = None
    """Of a text file, where every cell is still text; None if the columns came with types."""
    comma: bool = False
    """Whether some cell of a text file has a decimal comma."""
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)


def read(source: Any, name: str | None = None) -> Raw:
    """A file by its name, or a frame of pandas, polars or Arrow."""
    arrow = needed()
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        found = _file(path, str(path) if name is None else name)
    else:
        found = Raw(name or "frame", _frame(source, name or "frame", arrow))
    return _named(found)


def needed() -> Any:
    """Arrow, or what to do to get it."""
    try:
        import pyarrow
    except ImportError:
        raise BadInput('reading tables needs pyarrow: pip install "fedrelay[table]"') from None
    return pyarrow


def _frame(source: Any, name: str, arrow: Any) -> Any:
    if isinstance(source, arrow.Table):
        return source
    try:
        if hasattr(source, "to_arrow"):  # polars
            return source.to_arrow()
        if hasattr(source, "iloc"):  # pandas
            return arrow.Table.from_pandas(source, preserve_index=False)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise wrong(name, "columns of one type each", f"others ({error})") from None
    raise wrong(name, "a path, or a frame of pandas, polars or pyarrow", f"a {type(source).__name__}")


def _file(path: Path, name: str) -> Raw:
    import pyarrow as arrow
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    if not path.is_file():
        raise wrong(path, "a file", "a folder" if path.is_dir() else "nothing there")
    if not path.name.lower().endswith(SUFFIXES):
        raise wrong(path, f"a name that ends in {', '.join(SUFFIXES)}", f"{path.name}")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return Raw(name, parquet.read_table(path))
        text, notes = _text(path)
        text = text.lstrip("\r\n")
        told = re.match(r"sep=(.)\r?\n", text)  # as Excel has it
        delimiter, text = (told[1], text[told.end() :]) if told else (delimiter_of(text), text)
        names = next(csv.reader(text.splitlines()[:1], delimiter=delimiter), [])
        texts = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, arrow.string()),
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        )
        parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        content = arrow.BufferReader(text.encode())
        whole = arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=max(len(text.encode()), 1 << 20))
        table = arrow_csv.read_csv(content, parse_options=parse, convert_options=texts, read_options=whole)
        return Raw(name, table, delimiter, has_comma(text, delimiter), notes)
    except (arrow.ArrowException, OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise wrong(path, "a whole table", f"a damaged one ({error})") from None


def _text(path: Path) -> tuple[str, tuple[str, ...]]:
    """What is written, in Unicode or else as Windows writes it in Western Europe."""
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16"), ()
    try:
        return content.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        return content.decode("cp1252"), (f"{path.name} is not UTF-8 and was read as Windows-1252",)


def delimiter_of(text: str) -> str:
    """The sign that cuts the first lines into equally many cells; a comma if none does."""
    lines = text[: 1 << 20].splitlines()[:SAMPLE]

    def fit(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    return max(DELIMITERS, key=fit)


def has_comma(text: str, delimiter: str) -> bool:
    """Whether a cell is a number with a decimal comma; where commas cut cells, none is."""
    edge = re.escape(delimiter) + r'"\n\r'
    return delimiter != "," and re.search(rf"(?:^|[{edge}])[+-]?\d+,\d+(?:[{edge}]|$)", text) is not None


def _named(raw: Raw) -> Raw:
    """Names without blanks around them; a column without one (the row numbers that pandas writes) is left out."""
    names = [str(name).strip() for name in raw.names]
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise wrong(raw.name, "every column to have a name of its own", f"{', '.join(map(repr, twice))} more than once")
    table = raw.table.rename_columns(names)
    unnamed = [place for place, name in enumerate(names) if not name or name.startswith("Unnamed: ")]
    if not unnamed:
        return replace(raw, table=table)
    kept = table.select([place for place in range(len(names)) if place not in unnamed])
    note = f"{len(unnamed)} columns without a name are left out"
    return replace(raw, table=kept, notes=(*raw.notes, note))
