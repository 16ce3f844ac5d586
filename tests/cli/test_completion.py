"""A real shell completes our commands, options, names and files."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from needs import posix

from fedrelay import cli
from fedrelay.cli.completion import parsers
from fedrelay.cli.main import parser
from fedrelay.data.sources import FILES

ASK = r"""
source ./script
complete -p fedrelay > /dev/null || exit 1
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    "$(complete -p fedrelay | sed 's/.*-F \([^ ]*\).*/\1/')" fedrelay "${@: -1}" "${@: -2:1}"
    echo "${COMPREPLY[@]}"
}
"""


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Writes the script for a shell."""
    monkeypatch.chdir(tmp_path)

    def write(shell: str) -> None:
        assert cli.main(["completion", shell]) == 0
        (tmp_path / "script").write_text(capsys.readouterr().out)

    return write


@posix
def test_bash_completes_commands_options_names_and_files(script, tmp_path):
    for name in ("mine.toml", "mine.csv"):
        (tmp_path / name).touch()
    (tmp_path / "mined").mkdir()
    script("bash")
    words = {
        "": {name for action in parser()._subparsers._group_actions for name in action.choices},  # type: ignore[union-attr]
        "rep": {"report", "reproduce"},
        "run --res": {"--resume"},
        "run mi": {"mine.toml", "mined"},
        "report mi": {"mined"},
        "reproduce fedseq/table": {f"fedseq/table{number}" for number in range(1, 5)},
        "data get cifar": {name for name in FILES if name.startswith("cifar")},
        "completion ": {"bash", "zsh", "fish"},
    }
    asked = "".join(f"ask fedrelay {shlex.join(typed.split(' '))}\n" for typed in words)
    done = subprocess.run(["bash", "-c", ASK + asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = dict(zip(words, map(str.split, done.stdout.splitlines()), strict=True))
    assert {typed: {*offered} - {"-h", "--help", "--version"} for typed, offered in found.items()} == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_scripts(script, shell, tmp_path):
    script(shell)
    assert "fedseq/table2" in (tmp_path / "script").read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True)


def test_every_command_explains_itself_and_its_options():
    found = list(parsers(parser()))
    assert len(found) > 20
    for one in found:
        assert one.description, one.prog
        for action in one._actions:
            assert action.help or not action.option_strings, (one.prog, action.option_strings)
