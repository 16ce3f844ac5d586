"""Items are read from their files; every mistake is refused with the file and the key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.config import schema
from fedrelay.errors import BadInput
from fedrelay.studies.reproduce import formulas, scales
from fedrelay.studies.reproduce.item import ORDERS, SCALES, UNITS, Claim, Column, Item, Paper, Place, Printed, Scale
from fedrelay.studies.reproduce.measures import MEASURES
from fedrelay.studies.reproduce.pictures import PICTURES
from fedrelay.studies.reproduce.relative import RELATIONS, other_rows, set_beside
from fedrelay.studies.reproduce.same_runs import taken_over
from fedrelay.studies.reproduce.studies import STUDIES

Tables = Mapping[str, Any]
PAPER_FILE = "paper.toml"
NEVER = "never"
"""What a paper never reached."""
KEYS = (
    *("title", "where", "study", "notes", "needs", "pictures", "experiment", "panels", "means", "names"),
    *("scales", "columns", "paper", "symbols", "claims", "like", "runs"),
)


def read_paper(path: Path) -> Paper:
    """What a paper is; a file of the user's own need not have one."""
    tables = config.read(path)
    paper, _ = schema.build(Paper, {"name": path.parent.name, **tables}, f"{path}:", {})
    assert isinstance(paper, Paper)
    return paper


@contextmanager
def at(place: Path | str) -> Iterator[None]:
    """A mistake is told with the file, or the key, that it is in."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error


def read(path: Path) -> Item:
    """The item in this file; every mistake is refused with the file and the key."""
    tables = config.read(path)
    own = path.parent / PAPER_FILE
    paper = read_paper(own) if own.is_file() else Paper("", "")
    with at(path):
        if "like" in tables:
            tables = taken_over(tables, path, config.read)
        elif "runs" in tables:
            raise BadInput("runs of an item are those of its experiment; only one that is `like` another chooses some")
        return item_of(tables, f"{paper.name}/{path.stem}".strip("/"), paper)


def item_of(tables: Tables, name: str, paper: Paper) -> Item:
    """The item of these tables."""
    schema.check_keys(tables, KEYS, "item")
    study = schema.convert(need(tables, "study"), str, "study")
    schema.choose(STUDIES, study, "study")  # type: ignore[arg-type]
    panels = table_of(tables, "panels") or {"": {}}
    item = Item(
        name=name,
        paper=paper,
        title=schema.convert(need(tables, "title"), str, "title"),
        where=schema.convert(need(tables, "where"), str, "where"),
        study=study,
        experiment=table_of(tables, "experiment"),
        columns=tuple(column_of(one, f"[[columns]] {n}") for n, one in enumerate(listed(tables, "columns"), 1)),
        panels={panel: table_of(panels, panel, "panels.") for panel in panels},
        means={mean: mean_of(panels, one, mean) for mean, one in table_of(tables, "means").items()},
        names={row: schema.convert(said, str, f"names.{row}") for row, said in table_of(tables, "names").items()},
        scales={scale: scale_of(one, f"[scales.{scale}]") for scale, one in table_of(tables, "scales").items()},
        printed={},
        claims=(),
        notes=schema.convert(tables.get("notes", []), tuple[str, ...], "notes"),
        needs=schema.convert(tables.get("needs", ""), str, "needs"),
        pictures=schema.convert(tables.get("pictures", []), tuple[str, ...], "pictures"),
        like=f"{paper.name}/{tables['like']}".strip("/") if "like" in tables else "",
        rows=some(tables, "runs", "item"),
    )
    schema.check_keys(item.scales, SCALES[:2], "[scales]")
    for picture in item.pictures:
        schema.choose(PICTURES, picture, "pictures")
    return with_numbers(item, tables)


def need(tables: Tables, key: str) -> Any:
    if key not in tables:
        raise BadInput(f"{key} is missing")
    return tables[key]


def table_of(tables: Tables, key: str, prefix: str = "") -> dict[str, Any]:
    value = tables.get(key, {})
    if not isinstance(value, dict):
        raise BadInput(f"{prefix}{key} must be a table, not {value!r:.100}")
    return value


def listed(tables: Tables, key: str) -> list[dict[str, Any]]:
    value = tables.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadInput(f"{key} must be tables [[{key}]], not {value!r:.100}")
    return value


def column_of(values: Tables, where: str) -> Column:
    """A column; what is neither its name, unit, digits nor another row beside it is an option of the measure."""
    own = {key: values[key] for key in ("name", "unit", "digits") if key in values}
    rest = {key: value for key, value in values.items() if key not in (*own, "measure", *RELATIONS)}
    measure = schema.choose(MEASURES, values.get("measure"), f"{where}.measure")
    built, _ = schema.build(measure, rest, where, {})
    column = Column(
        schema.convert(need(own, "name"), str, f"{where}.name"),
        set_beside(built, values, where),
        schema.convert(own.get("unit", ""), str, f"{where}.unit"),
        schema.convert(own.get("digits", schema.NONE), int | None, f"{where}.digits"),
    )
    schema.check_keys({column.unit: None}, UNITS, f"{where}.unit")
    return column


def mean_of(panels: Tables, values: Any, name: str) -> tuple[str, ...]:
    """The panels that another is the mean of."""
    if not isinstance(values, dict):
        raise BadInput(f"means.{name} must be a table with `of`, not {values!r:.100}")
    schema.check_keys(values, ("of",), f"means.{name}")
    found: tuple[str, ...] = schema.convert(need(values, "of"), tuple[str, ...], f"means.{name}.of")
    for panel in found:
        known(panel, panels, f"means.{name}.of")
    return found


def known(name: str, valid: Any, where: str) -> str:
    if name not in valid:
        raise BadInput(f"{where}: there is no {name!r}{schema.nearest(name, valid)}")
    return name


def scale_of(values: Any, where: str) -> Scale:
    if not isinstance(values, dict):
        raise BadInput(f"{where} must be a table, not {values!r:.100}")
    schema.check_keys(values, ("why", "panels", "runs", "change", "change_in"), where)
    change_in = table_of(values, "change_in", f"{where}.")
    return Scale(
        why=schema.convert(values.get("why", ""), str, f"{where}.why"),
        panels=some(values, "panels", where),
        rows=some(values, "runs", where),
        change=table_of(values, "change", f"{where}."),
        change_in={panel: table_of(change_in, panel, f"{where}.change_in.") for panel in change_in},
    )


def some(values: Tables, key: str, where: str) -> tuple[str, ...] | None:
    if key not in values:
        return None
    found: tuple[str, ...] = schema.convert(values[key], tuple[str, ...], f"{where}.{key}")
    return found


# --- what can only be checked when the rest is known


def with_numbers(item: Item, tables: Tables) -> Item:
    """The item with the paper's numbers and claims, all of which must be of rows and columns that there are."""
    check_names(item)
    rows = {panel: [item.called(row) for row in scales.rows_of(item, "paper", panel)] for panel in item.panels}
    rows |= {mean: list(dict.fromkeys(row for panel in of for row in rows[panel])) for mean, of in item.means.items()}
    columns = [column.name for column in item.columns]
    check_columns(item)
    symbols = {
        name: schema.convert(value, float, f"symbols.{name}") for name, value in table_of(tables, "symbols").items()
    }
    numbers, printed = of_panel(tables, item), dict[str, dict[str, dict[str, Printed]]]()
    for panel in numbers:
        mine = printed.setdefault(known(panel, rows, "[paper]"), {})
        for row, values in table_of(numbers, panel, "paper.").items():
            where = f"[paper.{panel!r}.{row!r}]"
            cells = table_of({row: values}, known(row, rows[panel], f"[paper.{panel!r}]"), "paper.")
            mine[row] = {known(name, columns, where): printed_of(cell, where, symbols) for name, cell in cells.items()}
    claims = [claim_of(one, f"[[claims]] {n}", rows, columns) for n, one in enumerate(listed(tables, "claims"), 1)]
    return replace(item, printed=printed, claims=tuple(claims))


def check_names(item: Item) -> None:
    """Refuse a scale with panels, or a choice of rows, that there are not."""
    for name, scale in item.scales.items():
        for panel in (*(scale.panels or ()), *scale.change_in):
            known(panel, item.panels, f"[scales.{name}]")
        for row in scale.rows or ():
            known(row, all_rows(item, name), f"[scales.{name}].runs")
    for row in item.rows or ():
        known(row, all_rows(item, "paper"), "runs")


def check_columns(item: Item) -> None:
    """Refuse two columns of one name, and one that sets rows beside one that there is not."""
    rows = {row for panel in item.panels for row in item.kind.rows(scales.tables_of(item, "paper", panel))}
    names: list[str] = []
    for number, column in enumerate(item.columns, 1):
        if column.name in names:
            raise BadInput(f"[[columns]] {number}.name: {column.name!r} is the name of another column: give it its own")
        names.append(column.name)
        for key, row in other_rows(column.measure).items():
            known(row, rows, f"[[columns]] {number}.{key}")


def all_rows(item: Item, scale: str) -> list[str]:
    """What the rows of any panel are called."""
    whole = [scales.whole_tables(item, scale, panel) for panel in item.panels]
    return list(dict.fromkeys(item.called(row) for tables in whole for row in item.kind.rows(tables)))


def of_panel(tables: Tables, item: Item) -> dict[str, Any]:
    """[paper] by panel; an item without panels leaves that step out."""
    found = table_of(tables, "paper")
    return {"": found} if found and not any(item.panels) and not item.means else found


def printed_of(value: Any, where: str, symbols: Mapping[str, float]) -> Printed:
    """A number, "never", a table with the value and its deviation, or one with a formula and how it is printed."""
    if isinstance(value, dict) and "formula" in value:
        schema.check_keys(value, ("formula", "printed"), where)
        formula, text = (schema.convert(need(value, key), str, f"{where}.{key}") for key in ("formula", "printed"))
        with at(where):
            return Printed(formulas.value_of(formula, symbols), text=text)
    if isinstance(value, dict):
        schema.check_keys(value, ("value", "deviation"), where)
        return Printed(
            schema.convert(need(value, "value"), float, f"{where}.value"),
            schema.convert(value.get("deviation", schema.NONE), float | None, f"{where}.deviation"),
        )
    return Printed(None if value == NEVER else schema.convert(value, float, where))


def claim_of(values: Tables, where: str, rows: Mapping[str, list[str]], columns: Iterable[str]) -> Claim:
    """A claim: exactly one order, over rows (or [panel, row] pairs) that there are."""
    schema.check_keys(values, ("text", "panel", "column", "within", "by", *ORDERS), where)
    orders = [order for order in ORDERS if order in values]
    if len(orders) != 1:
        raise BadInput(f"{where}: say one of {', '.join(ORDERS)}, not {len(orders)} of them")
    (order,) = orders
    panel = schema.convert(values.get("panel", next(iter(rows))), str, f"{where}.panel")
    said = values[order]
    bounded = order in ("least", "most")
    if not isinstance(said, dict if bounded else list) or not said:
        wanted = "a table of numbers by row" if bounded else "a list of rows"
        raise BadInput(f"{where}.{order}: expected {wanted}, not {said!r:.100}")
    return Claim(
        text=schema.convert(need(values, "text"), str, f"{where}.text"),
        column=known(schema.convert(need(values, "column"), str, f"{where}.column"), list(columns), f"{where}.column"),
        order=order,
        places=tuple(place_of(one, panel, rows, f"{where}.{order}") for one in said),
        bounds=tuple(schema.convert(said[row], float, f"{where}.{order}") for row in said) if bounded else (),
        within=schema.convert(values.get("within", 0.0), float, f"{where}.within"),
        by=schema.convert(values.get("by", 0.0), float, f"{where}.by"),
    )


def place_of(value: Any, panel: str, rows: Mapping[str, list[str]], where: str) -> Place:
    """A row of the claim's panel, or [panel, row]."""
    panel, row = value if isinstance(value, list) and len(value) == 2 else (panel, value)
    if not isinstance(panel, str) or not isinstance(row, str):
        raise BadInput(f"{where}: expected the name of a row, or [panel, row], not {value!r:.100}")
    known(panel, rows, where)
    return Place(panel, known(row, rows[panel], where))
