"""What a column is: a number, a date or a category, found out from its cells or as the user says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources.checks import wrong
from fedrelay.data.tables.reading import Raw
from fedrelay.data.tables.table import Column, Declared, Kind, empty, shown
from fedrelay.errors import BadInput

GAPS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "?"})
"""Cells that say nothing, in any column."""
SOFT_GAPS = frozenset({"-", "–", ".", "none", "nat", "unknown", "missing"})
"""Cells that say nothing among numbers and dates; among words they may be words."""

NUMBER = r"[+-]?(?:(?:0|[1-9]\d*)(?:{0}\d*)?|{0}\d+)(?:[eE][+-]?\d+)?"
POINT, COMMA = re.compile(NUMBER.format(r"\.")), re.compile(NUMBER.format(","))
CODE = re.compile(r"\d+")
"""Digits with zeros in front (postal codes) are no numbers."""
WHOLE = re.compile(r"([+-]?\d+)(?:[.,]0+)?")
POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+|[+-]?\d{1,3}")
COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+|[+-]?\d{1,3}")
"""What may be a decimal part and may be thousands."""

ISO = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}(?:[T ].+)?")
OTHER = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")
EPOCH = datetime(1970, 1, 1)

Cells = NDArray[Any]


def typed(raw: Raw, name: str, declared: Declared) -> Column:
    """A column of a table that was read, of the kind that was declared for it or that it shows."""
    column = raw.table[name]
    wanted = declared.kind(name)
    kind = str(column.type)
    if kind == "null":
        return empty(wanted or "number", len(column))
    if kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal", "bool")):
        return _numbers(raw, name, column, wanted)
    if kind.startswith(("timestamp", "date")):
        return _dates(column) if wanted != "category" else Column("category", _texts(column))
    if kind.startswith(("string", "large_string", "string_view")):
        return _Typing(raw, name, _texts(column), declared).column(wanted)
    if kind.startswith("dictionary"):  # a frame that says "category"
        return _Typing(raw, name, _texts(column), declared).column(wanted or "category")
    hint = "leave it out of `features`"
    raise wrong(raw.name, f"column {name!r} to be numbers, dates or categories", f"{kind}; {hint}")


def words(raw: Raw, name: str) -> Cells:
    """A column as texts, whatever it holds; gaps are None."""
    return _texts(raw.table[name])


def _texts(column: Any) -> Cells:
    """Texts without blanks around them; whole numbers without a fraction; gaps are None."""
    if str(column.type) == "string_view":
        column = column.cast("large_string")
    encoded = column if str(column.type).startswith("dictionary") else column.dictionary_encode()
    encoded = encoded.unify_dictionaries().combine_chunks()
    known = np.array([_text(value) for value in encoded.dictionary.to_pylist()] + [None], dtype=object)
    places = encoded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    found: Cells = known[places]
    return found


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return None if text.lower() in GAPS else text


def _numbers(raw: Raw, name: str, column: Any, wanted: Kind | None) -> Column:
    """A column that came as numbers."""
    if wanted == "category":
        return Column("category", _texts(column))
    if wanted == "date":
        raise wrong(raw.name, f"column {name!r} to be dates", f"numbers ({column.type})")
    values = column.cast("float64", safe=False) if not str(column.type).startswith("bool") else column.cast("uint8")
    return Column("number", np.array(values.to_numpy(), dtype=np.float64))


def _dates(column: Any) -> Column:
    """A column that came as dates or times."""
    moments = column.cast("timestamp[us]", safe=False)  # of a time with a zone: the same moment in UTC
    days = moments.to_numpy().astype("datetime64[us]")
    values = (days - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return Column("date", np.array(values, dtype=np.float64))  # NaT becomes NaN


class _Typing:
    """Finds out what a column of texts is, by looking at every different cell once."""

    def __init__(self, raw: Raw, name: str, cells: Cells, declared: Declared) -> None:
        self.where, self.name, self.cells = raw.name, name, cells
        self.delimiter, self.comma, self.day_first = raw.delimiter, raw.comma, declared.day_first
        self.known = sorted({cell for cell in cells if cell is not None})
        self.hard = [cell for cell in self.known if cell.lower() not in SOFT_GAPS]

    def column(self, wanted: Kind | None) -> Column:
        if wanted == "category":
            return Column("category", self._whole())
        if not self.known:
            return empty(wanted or "number", len(self.cells))
        if wanted == "number" or (wanted is None and self.delimiter is not None and self._all(self._is_number)):
            return self._as("number", self._number)
        if wanted == "date" or (wanted is None and self._all(is_date)):
            order = day_first(self.where, self.name, self.hard, self.day_first)
            return replace(self._as("date", partial(days, self.where, self.name, bool(order))), day_first=order)
        if not all(CODE.fullmatch(cell) for cell in self.known):
            self._refuse_mixed()
        return Column("category", self.cells)

    def _whole(self) -> Cells:
        """The cells, but 1 for 1.0 in a column of whole numbers: so are they written where there are gaps."""
        matches = {cell: WHOLE.fullmatch(cell) for cell in self.known}
        if not all(matches.values()):
            return self.cells
        short = {cell: match[1] for cell, match in matches.items() if match}
        return np.array([None if cell is None else short[cell] for cell in self.cells], dtype=object)

    def _all(self, test: Callable[[str], bool]) -> bool:
        return bool(self.hard) and all(map(test, self.hard))

    def _is_number(self, cell: str) -> bool:
        return bool(POINT.fullmatch(cell) or COMMA.fullmatch(cell))

    def _as(self, kind: Kind, value: Callable[[str], float]) -> Column:
        if kind == "number":
            self._check_decimals()
        known = {cell: value(cell) for cell in self.hard}
        return Column(kind, np.array([known.get(cell, np.nan) for cell in self.cells], dtype=np.float64))

    def _number(self, cell: str) -> float:
        if not self._is_number(cell):
            odd = [each for each in self.hard if not self._is_number(each)]
            raise wrong(self.where, f"column {self.name!r} to be numbers", f"{len(odd)} other cells: {shown(odd)}")
        return float(cell.replace(",", "."))

    def _check_decimals(self) -> None:
        """Refuse a column with points and commas, or whose decimal signs may be those of thousands."""
        points, commas = ([cell for cell in self.hard if sign in cell] for sign in ".,")
        if points and commas:
            found = f"points and commas ({points[0]!r}, {commas[0]!r})"
            raise wrong(
                self.where, f"column {self.name!r} to have one decimal sign", f"{found}; write 1234.5 or 1234,5"
            )
        if commas and self.delimiter == "," and all(COMMA_GROUPS.fullmatch(cell) for cell in self.hard):
            found = f"{commas[0]!r}, which may be {commas[0].replace(',', '')} or {commas[0].replace(',', '.')}"
            raise wrong(self.where, f"column {self.name!r} to be numbers without commas", found)
        if points and self.comma and all(POINT_GROUPS.fullmatch(cell) for cell in self.hard):
            found = f"{points[0]!r} beside columns with decimal commas: it may be {points[0].replace('.', '')}"
            raise wrong(self.where, f"column {self.name!r} to have decimal commas too", found)

    def _refuse_mixed(self) -> None:
        """Refuse a column that is mostly numbers or dates, but not quite."""
        for kind, test in (("numbers", self._is_number), ("dates", is_date)):
            odd = [cell for cell in self.hard if not test(cell)]
            if self.hard and len(odd) <= len(self.hard) / 2:
                hint = f"mend them, or declare categories = [{self.name!r}] if these are words"
                found = f"{len(odd)} of {len(self.hard)} different cells that are none: {shown(odd)}; {hint}"
                if not odd:  # of a frame, which has types and calls this one text
                    found = f"texts such as {self.hard[0]!r}; declare {kind} = [{self.name!r}], or categories"
                raise wrong(self.where, f"column {self.name!r} to be {kind}", found)


def is_date(cell: str) -> bool:
    return bool(ISO.fullmatch(cell) or OTHER.fullmatch(cell))


def days(where: str, name: str, day_first: bool, cell: str) -> float:
    """A date in days since 1970."""
    try:
        return (_moment(cell, day_first) - EPOCH) / timedelta(days=1)
    except (ValueError, OverflowError):
        raise wrong(where, f"column {name!r} to be dates", f"{cell!r}") from None


def day_first(where: str, name: str, cells: Sequence[str], declared: bool | None) -> bool | None:
    """Whether days come before months: as declared, or dots say so, otherwise a day after the 12th does. None where the
    year comes first."""
    split = [match for match in map(OTHER.fullmatch, cells) if match]
    if declared is not None or not split:
        return declared
    if all(match[2] == "." for match in split) or any(int(match[1]) > 12 for match in split):
        return True
    if any(int(match[3]) > 12 for match in split):
        return False
    raise BadInput(
        f"{where}: column {name!r} has dates such as {split[0][0]!r} that can be read in two ways: "
        "say day_first = true (or false)"
    )


def _moment(cell: str, day_first: bool) -> datetime:
    match = OTHER.fullmatch(cell)
    if match:
        one, other = int(match[1]), int(match[3])
        day, month = (one, other) if day_first else (other, one)
        hour, minute, second = (int(match[place] or 0) for place in (5, 6, 7))
        return datetime(int(match[4]), month, day, hour, minute, second)
    date, *time = re.split(r"[T ]", cell, maxsplit=1)
    year, month, day = map(int, re.split(r"[-/]", date))
    moment = datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}" + (f"T{time[0].strip()}" if time else ""))
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
