"""Whether a run goes on, in which process, and asking that one to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from needs import posix
from test_claim import recorder

from fedrelay import BadInput
from fedrelay.runs.claim import alone_in
from fedrelay.runs.holder import Holder, held, holder_of, stop


def test_a_folder_is_held_while_a_run_goes_on_and_not_after_it(tmp_path):
    folder = tmp_path / "run"
    assert not held(folder)
    rounds = recorder(folder).run()
    next(rounds)
    assert held(folder)
    found = holder_of(folder)
    assert found is not None
    assert (found.pid, found.signal) == (os.getpid(), signal.SIGINT)
    list(rounds)
    assert not held(folder)
    assert holder_of(folder) is None
    assert sorted(path.name for path in (folder / "checkpoint").iterdir() if path.suffix != ".pt") == [".lock"]


def test_asking_who_holds_a_folder_leaves_it_free(tmp_path):
    with alone_in(tmp_path / "run"):
        pass
    assert not held(tmp_path / "run")
    with alone_in(tmp_path / "run"):
        assert held(tmp_path / "run")


@posix
def test_a_folder_cannot_make_us_stop_a_process_that_does_not_write_into_it(tmp_path):
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        claimed = Holder.here().__dict__ | {"pid": other.pid}
        with alone_in(folder):
            (folder / "checkpoint" / ".holder.json").write_text(json.dumps(claimed))
            if sys.platform == "linux":
                with pytest.raises(BadInput, match="is not the one that writes into it"):
                    stop(folder)
            (folder / "checkpoint" / ".holder.json").write_text(json.dumps(claimed | {"host": "elsewhere"}))
            with pytest.raises(BadInput, match="of elsewhere: stop it there"):
                stop(folder)
            (folder / "checkpoint" / ".holder.json").write_text(json.dumps(claimed | {"signal": int(signal.SIGKILL)}))
            with pytest.raises(BadInput, match="no signal stops cleanly"):
                stop(folder)
            (folder / "checkpoint" / ".holder.json").write_text("[]")
            with pytest.raises(BadInput, match="nothing to stop"):
                stop(folder)
        assert other.poll() is None
        with pytest.raises(BadInput, match="nothing to stop"):
            stop(folder)
        other.communicate(b"\n")


def test_the_link_in_the_place_of_the_holder_is_refused(tmp_path):
    list(recorder(tmp_path / "run").run())
    Path(tmp_path / "run" / "checkpoint" / ".holder.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="found a link"), alone_in(tmp_path / "run"):
        pass
