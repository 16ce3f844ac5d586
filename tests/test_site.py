"""The documentation site is built without a warning and without a network, and what its pages show comes true."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from needs import needed, posix

import fedrelay
from fedrelay import cli

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
QUICK = ["--set", "rounds=4", "--set", "engine.name=inline"]


def tool(name: str) -> ModuleType:
    """A script of docs/tools."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(*command: str | Path, **environment: str) -> str:
    """What a command of Python says, when it ends well."""
    there = os.environ | {"PYTHONPATH": str(Path(fedrelay.__file__).parents[1]), "OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=there, capture_output=True, text=True, encoding="utf-8", timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# --- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("material", "mkdocstrings"):
        needed(module)
    folder = tmp_path_factory.mktemp("site")
    told("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder, NO_MKDOCS_2_WARNING="1")
    return folder


def test_every_page_is_in_the_site_and_fetches_nothing(site: Path):
    pages = {page.relative_to(site).with_suffix("").as_posix(): page for page in site.rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")} <= set(pages)
    assert {"changelog", "contributing", "security", "notebooks/compare", "notebooks/own_data"} <= set(pages)
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(\w+:[^\"'> ]{0,40})", text)
        loaded += re.findall(
            r"<link\b[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload)[^>]*\bhref=[\"']?(\w+:[^\"'> ]+)", text
        )
        assert [address for address in loaded if not address.startswith("data:")] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\"' ]*https?:", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_public_name_is_in_the_reference(site: Path):
    for room in tool("site").rooms():
        page = (site / "api" / f"{room}.html").read_text(encoding="utf-8")
        module = sys.modules.get(room) or __import__(room, fromlist=["_"])
        for name in module.__all__:
            anchored = re.search(rf'(?:id="|href=")[^"]*[.#]{name}(?:\.html)?"', page)
            assert name.startswith("_") or anchored, f"{room}.{name}"
    assert "FedSeq" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


def test_blocks_and_links_of_a_code_host_become_the_sites_own(site: Path):
    adapted = tool("site")
    assert adapted.titled("```sh on relay\nls\n```") == '```sh title="on relay"\nls\n```'
    assert adapted.titled("```python\nx\n```") == "```python\nx\n```"
    text = "[a](../../CHANGELOG.md#x) [`[b]`](../data.md) [c](../../src/) ![d](../demo.png) [e](https://e.org)"
    linked = adapted.linked(text, "docs/stories/story.md", "stories/story.md")
    assert linked == "[a](../changelog.md#x) [`[b]`](../data.md) c ![d](../demo.png) [e](https://e.org)"


# --- pictures, notebooks, citations


def test_the_drawn_chains_are_what_the_script_draws():
    drawn = tool("chains").drawn()
    assert {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")} == drawn


def test_the_notebooks_run_and_show_what_is_stored():
    for module in ("nbclient", "ipykernel", "matplotlib", "pandas"):
        needed(module)
    said = told(DOCS / "tools" / "notebooks.py", "--check")
    assert "compare.ipynb" in said
    assert "own_data.ipynb" in said


def test_citations_tell_the_version():
    assert f"version: {fedrelay.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version = {{{fedrelay.__version__}}}" in (DOCS / "cite.md").read_text(encoding="utf-8")


# --- the ways


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, until: str = "") -> None:
    """Save the files of a page and do what its shell is told, with fewer rounds, in one process."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    text = (DOCS / page).read_text(encoding="utf-8")
    text = text[: text.index(until) if until else None]
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        named = re.match(r"# (\w+\.(?:py|toml))\n", block)
        if named:
            (folder / named[1]).write_text(block.replace("rounds=60", "rounds=6"), encoding="utf-8")
        elif language == "python":
            exec(compile(block, page, "exec"), {})
        elif language == "sh":
            for words in map(shlex.split, block.splitlines()):
                obey(words)


def obey(words: list[str]) -> None:
    if words[0] == "python":
        runpy.run_path(words[1])
    else:
        quick = QUICK if words[1] in ("run", "compare", "tune") else []
        assert cli.main([*words[1:], *quick]) == 0, words


def test_five_minutes_end_with_a_report_and_a_frame(tmp_path, monkeypatch, capsys):
    follow("start.md", tmp_path, monkeypatch)
    assert (tmp_path / "report.html").is_file()
    assert re.search(r"seq +fedseq +0\.\d+", capsys.readouterr().out)


def test_a_researcher_gets_a_table_seed_by_seed(tmp_path, monkeypatch, capsys):
    needed("pandas")
    follow("tutorials/researcher.md", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert "Best: --set local.lr=" in printed
    assert re.search(r"seed\n0 +-?0\.\d+\n1 +-?0\.\d+\n2 +-?0\.\d+", printed)
    assert "NaiveGSP+ICG" in printed
    assert (tmp_path / "runs" / "compare" / "report.html").is_file()


def test_a_hospital_looks_and_compares_and_then_does_what_four_hospitals_do(tmp_path, monkeypatch, capsys):
    """The part with real clients is that page's, word for word, and has its own test."""
    needed("pandas")
    follow("tutorials/hospital.md", tmp_path, monkeypatch, until="## For real")
    printed = capsys.readouterr().out
    assert re.search(r"screening +█+ ", printed)
    assert "Try fedseq+feddyn (max_clients = 4) first" in " ".join(printed.split())
    assert len(fedrelay.results("runs/compare").runs) == 9
    mine, theirs = (
        (DOCS / page).read_text(encoding="utf-8") for page in ("tutorials/hospital.md", "four-hospitals.md")
    )
    for beginning in ("python\n# make_tables", "toml\n# hospitals", "sh\nfedrelay keys"):
        one, other = (re.search(f"```{beginning}.*?```", text, re.DOTALL) for text in (mine, theirs))
        assert one is not None
        assert other is not None
        assert one[0].replace('path = "tables"\n', "") == other[0]


@posix  # a module that is imported from the folder stays open on Windows
def test_a_method_author_has_a_method_in_one_file(tmp_path, monkeypatch, capsys):
    needed("pandas")
    follow("tutorials/method-author.md", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert "the step is the paper's" in printed
    assert re.search(r"fedexp\+fedprox +0\.\d+", printed)
