"""Names with markup and escape codes in them: in pages and in the terminal they are text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from shutil import rmtree

import cases
import tomli_w
from child import command, complaint
from share import Share, Verdict

NAMES = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'><iframe src=javascript:alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "]]><b>",
    "&lt;b&gt;&#60;i&#62;",
    "\u2028</title><base href=//x>",
    "[red]markup[/red]",
    "[link=https://x]here[/link]",
    "[/]",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "a\rb",
    "a\bb\x7f",
    "\u202etxt.exe",
    "=cmd|' /C calc'!A1",
    "a\tb\nc",
)
SAFE = "a harmless name"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tags(HTMLParser):
    """Every tag of a page with the names of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


# --- where a name may stand


def table(folder: Path, name: str) -> list[list[str]]:
    """Clients, columns and classes of a table of one's own."""
    rows = [("client", "label", name), *((f"{name}{n % 3}", f"{name}{n % 2}", str(n)) for n in range(24))]
    lines = (",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    (folder / "t.csv").write_text("\n".join(lines), encoding="utf-8", newline="")
    data = {"name": "table", "path": "t.csv", "client_tests": "owned"}
    tables = {**cases.BASE, "rounds": 1, "data": data, "model": {"name": "mlp", "hidden": [4]}}
    (folder / "case.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    return [["data", "show", "case.toml"], ["run", "case.toml", "--out", "out"], ["report", "out", "--out", "p.html"]]


def runs(folder: Path, name: str) -> list[list[str]]:
    """Names of runs in a comparison."""
    tables = {**cases.BASE, "rounds": 1, "runs": {name: {}, "other": {"local": {"lr": 0.2}}}}
    (folder / "case.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    return [["compare", "case.toml", "--out", "out"]]


def path(folder: Path, name: str) -> list[list[str]]:
    """The name of a run's folder."""
    place = "made-" + name.replace("/", "_").replace("\0", "")
    (folder / "case.toml").write_text(tomli_w.dumps({**cases.BASE, "rounds": 1}), encoding="utf-8")
    return [["run", "case.toml", "--out", place], ["report", place, "--out", "p.html"]]


def setting(folder: Path, name: str) -> list[list[str]]:
    """What is wrong in a configuration, and told."""
    (folder / "case.toml").write_text(tomli_w.dumps({**cases.BASE, "model": {"name": name}, name: 1}), encoding="utf-8")
    return [["run", "case.toml", "--out", "out"], ["run", "case.toml", "--set", f"{name}=1"], ["report", f"no{name}"]]


PLACES: dict[str, Callable[[Path, str], list[list[str]]]] = {
    "table": table,
    "runs": runs,
    "folder": path,
    "refusals": setting,
}


def injected(share: Share) -> Iterator[Verdict]:
    """Every name in every place, beside a harmless one."""
    pairs = [(place, name) for name in NAMES for place in PLACES]
    usual = {place: tried(share.folder, place, SAFE)[1] for place in PLACES}
    for number in share.numbers():
        if number >= len(pairs):
            return
        place, name = pairs[number]
        problem, tags = tried(share.folder, place, name)
        if not problem and tags and tags != usual[place]:
            odd = [tag for tag in tags if tag not in usual[place]] or "another number of tags"
            problem = f"the page has other tags: {odd}"[:300]
        yield Verdict(f"{name!r} in {place}", problem)


def tried(place: Path, where: str, name: str) -> tuple[str, list[tuple[str, tuple[str, ...]]]]:
    """What is wrong with what is said, and the tags of the pages; a name may be refused."""
    own = place / "trial"
    rmtree(own, ignore_errors=True)
    own.mkdir()
    refused = False
    for arguments in PLACES[where](own, name):
        ended = command(arguments, own)
        if problem := complaint(ended, (0, 2)):
            return f"{arguments[0]}: {problem}", []
        if codes := CONTROL.search(ended.said):
            line = ended.said[max(codes.start() - 40, 0) : codes.start() + 20]
            return f"{arguments[0]}: {codes[0]!r} reached the terminal: {line!r}", []
        refused |= ended.code != 0
    if refused:
        return "", []
    tags = [tag for page in sorted(own.rglob("*.html")) for tag in Tags(page.read_text(encoding="utf-8")).found]
    return "", tags
