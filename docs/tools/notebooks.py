"""Runs the notebooks of docs/notebooks: `python docs/tools/notebooks.py` stores what came of it in them.

With `--check` nothing is stored: cells must show the words that are stored, whatever their numbers and pictures.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def run(path: Path, within: str) -> nbformat.NotebookNode:
    """The notebook with what came of it, run in a folder of its own."""
    notebook = nbformat.read(path, as_version=4)
    patience = {"timeout": 300, "startup_timeout": 300}
    NotebookClient(notebook, **patience, kernel_name="python3", resources={"metadata": {"path": within}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # when it ran is no result
    notebook.metadata = {"language_info": {"name": "python"}}
    return notebook


def words(notebook: nbformat.NotebookNode) -> list[str]:
    """What cells show, without what may differ from machine to machine."""
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            found = output.get("data", {"text/plain": output.get("text", "")})
            text = found.get("text/html", found.get("text/plain", ""))
            text = re.sub(r"base64,[^']*|points='[^']*'|id=\"[^\"]*\"|#T_\w+", "", text)
            shown.append(" ".join(re.sub(r"[-+]?[0-9][0-9.,e+-]*", "#", text).split()))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="store nothing, and compare with what is stored")
    check = parser.parse_args().check
    for path in sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder, "JUPYTER_PLATFORM_DIRS": "1"}
            done = run(path, folder)
        if not check:
            nbformat.write(done, path)
        elif words(done) != (stored := words(nbformat.read(path, as_version=4))):
            differing = [pair for pair in zip(stored, words(done), strict=False) if pair[0] != pair[1]]
            print(f"{path.name} shows something else than is stored:", *differing, sep="\n")
            return 1
        print(f"{path.name}: {len(done.cells)} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main())
