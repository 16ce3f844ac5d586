"""What `make docs` does besides reading docs/: pages from beside it, notebooks as pages, the API reference.

Pages are plain Markdown for a code host. Where that differs from what the site's parser wants, they are adapted here.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
BESIDE = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
"""Pages of the site that are files beside docs/."""
PLACES = {"README.md": "index.md", **{source: page for page, source in BESIDE.items()}}
"""Where the site has what lies beside docs/."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Before the last part of the navigation come pages that have no place in it yet, and the API reference."""
    assert config.nav is not None
    docs = Path(config.docs_dir)
    pages = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    if new := [page for page in pages if page not in set(placed(config.nav))]:
        config.nav.insert(-1, {"More": new})
    config.nav.insert(-1, {"API": [{room: f"api/{room}.md"} for room in rooms()]})
    return config


def placed(nav: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from placed(part)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for page, source in BESIDE.items()}
    made |= {f"api/{room}.md": reference(room) for room in rooms()}
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        made[file.src_uri.removesuffix("ipynb") + "md"] = notebook(json.loads(file.content_string))
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links lead to pages of the site, and blocks have their titles."""
    uri = page.file.src_uri
    source = BESIDE.get(uri, f"docs/{uri}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(titled(part) if part.startswith("```") else linked(part, source, uri) for part in parts)


# --- what differs from a code host


def titled(block: str) -> str:
    """What follows the language of a block is its title."""
    return re.sub(r'\A```(\w+) ([^"\n]+)$', r'```\1 title="\2"', block, flags=re.MULTILINE)


def linked(text: str, source: str, uri: str) -> str:
    """Links of a file, as those of its page; what the site does not have stays as words."""

    def replaced(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target or ":" in target:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = PLACES.get(place, place)
        if place.startswith("docs/"):
            place = place.removeprefix("docs/")
        elif place not in PLACES.values():
            return words.removeprefix("!")[1:-1]
        if place.endswith(".ipynb") and not words.startswith("[Download"):
            place = place.removesuffix("ipynb") + "md"
        return f"{words}({posixpath.relpath(place, posixpath.dirname(uri) or '.')}{anchor})"

    return re.sub(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^)\s#]*)(#[^)\s]*)?\)", replaced, text)


# --- notebooks


def notebook(content: dict[str, Any]) -> str:
    """A notebook as Markdown: its words, its code, and what came of it."""
    return "\n\n".join(part for cell in content["cells"] for part in shown(cell)) + "\n"


def shown(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        found = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in found:
            yield f'<img alt="figure" class="output" src="data:image/png;base64,{"".join(found["image/png"]).strip()}">'
        elif "text/html" in found:
            inner = re.sub(r"\s*\n\s*", " ", "".join(found["text/html"]))  # an empty line would end the block
            yield f'<div class="output">{inner}</div>'
        else:
            yield f"```text\n{''.join(found['text/plain']).rstrip()}\n```"


# --- the API reference


def rooms() -> list[str]:
    """The package and all public modules below it, as listed in `__all__`."""
    return sorted(rooms_below("fedrelay"))


def rooms_below(room: str) -> Iterator[str]:
    yield room
    for name in modules_of(room):
        yield from rooms_below(f"{room}.{name}")


@cache
def parsed(room: str) -> ast.Module:
    path = ROOT.joinpath("src", *room.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


def listed(room: str) -> list[str]:
    """What a module lists in `__all__`, which every public one has."""
    lists = [node for node in parsed(room).body if isinstance(node, ast.Assign) and names_all(node)]
    return [name for node in lists for name in ast.literal_eval(node.value) if name[0] != "_"]


def names_all(node: ast.Assign) -> bool:
    return getattr(node.targets[0], "id", "") == "__all__"


def modules_of(room: str) -> list[str]:
    """Those of its names that a package imports from itself, as `from fedrelay.data import own`."""
    own = [node for node in ast.walk(parsed(room)) if isinstance(node, ast.ImportFrom) and node.module == room]
    found = {alias.name for node in own for alias in node.names}
    return [name for name in listed(room) if name in found]


def defined_in(room: str, name: str) -> str:
    """The module that has what a package lists."""
    for node in ast.walk(parsed(room)):
        if isinstance(node, ast.ImportFrom) and node.module != room and name in [alias.name for alias in node.names]:
            return defined_in(str(node.module), name) if str(node.module).startswith("fedrelay") else room
    return room


def reference(room: str) -> str:
    """The page of a module: what it lists, in the words of the docstrings. What the package itself lists is there."""
    modules = modules_of(room)
    places = {name: f"{defined_in(room, name)}.{name}" for name in listed(room) if name not in modules}
    top = {f"{defined_in('fedrelay', name)}.{name}" for name in listed("fedrelay")} if room != "fedrelay" else set()
    parts = [f"# {room}", f"::: {room}\n    options:\n      members: false"]
    if modules:
        parts.append("Modules: " + ", ".join(f"[`{room}.{name}`]({room}.{name}.md)" for name in modules) + ".")
    if elsewhere := [f"[`{name}`](fedrelay.md#{place})" for name, place in places.items() if place in top]:
        parts.append(f"Also listed here, and described [at the top](fedrelay.md): {', '.join(elsewhere)}.")
    heading = "    options:\n      show_root_heading: true\n      show_root_toc_entry: true"
    parts += [f"::: {place}\n{heading}" for place in places.values() if place not in top]
    return "\n\n".join(parts) + "\n"
