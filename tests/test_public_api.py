"""What users may rely on is listed: the names in `__all__` of the package and of its public rooms."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedrelay
from fedrelay.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

WITHOUT_POSIX = """
import importlib, pkgutil, sys
# What others import is theirs to see to.
import filelock, flwr.clientapp, flwr.serverapp, h5py, jinja2, joblib, numpy
import rich.progress, scipy, torch

for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
import fedrelay

for module in pkgutil.walk_packages(fedrelay.__path__, "fedrelay."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def rooms(module: ModuleType) -> Iterator[ModuleType]:
    """A module and those that it lists, and those that they list."""
    yield module
    for name in module.__all__:
        if isinstance(part := getattr(module, name, None), ModuleType):
            yield from rooms(part)


ROOMS = list(rooms(fedrelay))


def is_listed(module: str, name: str) -> bool:
    """Whether a module, or a package that it is in, lists this very thing."""
    thing = getattr(import_module(module), name)
    above = [".".join(module.split(".")[: depth + 1]) for depth in range(module.count(".") + 1)]
    listing = [package for package in map(import_module, above) if name in getattr(package, "__all__", ())]
    return isinstance(thing, ModuleType) or any(getattr(package, name) is thing for package in listing)


def imported(page: Path) -> Iterator[tuple[str, str]]:
    """What the examples of a page import of the package: modules and names."""
    text = page.read_text(encoding="utf-8")
    for module, names in re.findall(r"^ *from (fedrelay[\w.]*) import (\([^)]*\)|.*)", text, flags=re.MULTILINE):
        yield from ((module, name) for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names)))


def reached(page: Path) -> Iterator[list[str]]:
    """What a page, in its examples or in its text, calls fr.this or fr.this.that."""
    for path in re.findall(r"\bfr\.(\w+(?:\.\w+)*)", page.read_text(encoding="utf-8")):
        yield path.split(".")


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_listed_name_exists_once_and_says_what_it_is(room):
    assert room.__doc__
    assert len(set(room.__all__)) == len(room.__all__)
    for name in room.__all__:
        thing = getattr(room, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert thing.__doc__ or not thing.__module__.startswith("fedrelay"), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_readme_and_the_docs_import_is_listed(page):
    assert [f"{module}.{name}" for module, name in imported(page) if not is_listed(module, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_readme_and_the_docs_reach_from_the_package_is_listed(page):
    for path in reached(page):
        thing = fedrelay
        for name in path:
            if not isinstance(thing, ModuleType):
                break  # members of classes are theirs to document
            assert name in thing.__all__, f"{page.name}: fr.{'.'.join(path)}"
            thing = getattr(thing, name)


def test_the_recipe_of_every_method_is_listed():
    for name, row in ALGORITHMS.items():
        assert name in fedrelay.algorithms.__all__
        assert getattr(fedrelay.algorithms, name) is row.recipe


def test_the_top_of_the_package_is_seen_at_a_glance():
    every_package_has = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    entries = {path.name for path in Path(fedrelay.__file__).parent.iterdir()} - every_package_has
    assert len(entries) <= 20, sorted(entries)


def test_every_module_is_imported_where_there_is_no_posix():
    """As on Windows: what a system lacks is asked for when it is used, if at all."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
