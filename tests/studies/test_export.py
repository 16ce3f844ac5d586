"""The exported model gives what the network gives, for any number of inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from needs import needed

import fedrelay as fr
from fedrelay import BadInput, config
from fedrelay.studies.export import export

TABLES = {
    "rounds": 2,
    "data": {"name": "digits", "clients": 4},
    "model": {"name": "small_cnn"},
    "algorithm": {"name": "fedavg", "fraction": 1.0},
    "engine": {"name": "inline"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    list(config.build(TABLES).record(folder).run())
    return folder


@pytest.fixture(scope="module")
def expected(run) -> tuple[torch.Tensor, torch.Tensor]:
    """Five inputs and their logits, from the state_dict."""
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return x, fr.load_model(run)(x)


def test_torchscript_gives_the_same_logits_without_the_network_s_code(run, expected, tmp_path):
    path = export(run, tmp_path / "model.ts")
    facts = {"model.json": ""}
    with pytest.warns(DeprecationWarning, match=r"torch\.jit\.load"):
        network = torch.jit.load(path, _extra_files=facts)
    with torch.no_grad():
        assert torch.allclose(network(expected[0]), expected[1], atol=1e-6)
    assert json.loads(facts["model.json"])["class_names"] == [str(digit) for digit in range(10)]


def test_onnx_gives_the_same_logits_in_another_runtime(run, expected, tmp_path):
    runtime = needed("onnxruntime")
    session = runtime.InferenceSession(export(run, tmp_path / "model.bin", "onnx"))
    (found,) = session.run(None, {"input": expected[0].numpy()})
    np.testing.assert_allclose(found, expected[1].numpy(), atol=1e-5)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["model.json"])
    assert facts["shape"] == [1, 8, 8]


def test_without_another_form_the_state_dict_is_written(run, tmp_path):
    path = export(run, tmp_path / "deep" / "model.pth")
    assert path.read_bytes() == (run / "model.pt").read_bytes()


def test_a_name_that_says_nothing_is_refused(run, tmp_path):
    with pytest.raises(BadInput, match=r"model\.xyz does not say what to write: give --onnx or --torchscript"):
        export(run, tmp_path / "model.xyz")
    with pytest.raises(BadInput, match="is a folder: name a file"):
        export(run, tmp_path, "torchscript")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        export(run, tmp_path / "file" / "model.pt")


def test_without_onnx_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(BadInput, match=r'pip install "fedrelay\[onnx\]"'):
        export(run, tmp_path / "model.onnx")


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    for log in config.build(TABLES).record(tmp_path / "run").run():
        if log.round == 1:
            break
    with pytest.raises(BadInput, match="is not finished"):
        export(tmp_path / "run", tmp_path / "model.pt")
