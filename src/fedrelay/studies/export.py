"""The model of a finished run in a form that other programs read: ONNX, TorchScript, or the plain state_dict."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from fedrelay.errors import BadInput
from fedrelay.runs.folder import MODEL, MODEL_FACTS
from fedrelay.runs.output import Trained
from fedrelay.studies.loading import load_trained
from fedrelay.system import files

Form: TypeAlias = Literal["onnx", "torchscript", "state_dict"]

ENDINGS: dict[str, Form] = {
    ".onnx": "onnx",
    ".ts": "torchscript",
    ".torchscript": "torchscript",
    ".pt": "state_dict",
    ".pth": "state_dict",
}
"""What is meant where it is not said."""


def export(folder: Path | str, out: Path | str, form: Form | None = None, *, client: str | None = None) -> Path:
    """Write the model of the run in this folder to the file `out`: in this form, or as its ending says.

    What is written takes inputs as the network does and returns logits; class names, scaling and all else that
    model.json says go along in ONNX (metadata `model.json`) and TorchScript (extra file `model.json`).
    """
    trained, out = load_trained(folder), Path(out)
    if form is None:
        form = ENDINGS.get(out.suffix.lower())
    if form is None:
        raise BadInput(
            f"{out.name} does not say what to write: give --onnx or --torchscript, or a name that ends in .pt"
        )
    if out.is_dir():
        raise BadInput(f"{out} is a folder: name a file to write")
    content = WRITERS[form](trained, client)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, content)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another file with --out") from None
    return out


def state_dict(trained: Trained, client: str | None) -> bytes:
    """As it is, or that of one client."""
    if client is None:
        return (trained.folder / MODEL).read_bytes()
    content = io.BytesIO()
    torch.save(trained.network(client=client).state_dict(), content)
    return content.getvalue()


def torchscript(trained: Trained, client: str | None) -> bytes:
    """Traced with two inputs: it runs wherever libtorch does, without Python."""
    network, x = trained.network(client=client), example(trained)
    content = io.BytesIO()
    with quiet(), torch.no_grad():
        traced: Any = torch.jit.trace(network, x)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, content, _extra_files={MODEL_FACTS: facts(trained)})
    return content.getvalue()


def onnx(trained: Trained, client: str | None) -> bytes:
    """With one input `input` and one output `output`, both with any number of rows."""
    try:
        import onnx as onnx_package
        import onnxscript  # noqa: F401
    except ImportError:
        raise BadInput('writing ONNX needs onnx and onnxscript: pip install "fedrelay[onnx]"') from None
    network, x = trained.network(client=client), example(trained)
    with quiet():
        try:
            program: Any = torch.onnx.export(
                network,
                (x,),
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            reason = str(error).split("\n", 1)[0]
            raise BadInput(f"torch cannot write this network as ONNX ({reason}): --torchscript may work") from error
        proto = program.model_proto
    onnx_package.helper.set_model_props(proto, {MODEL_FACTS: facts(trained)})
    content: bytes = proto.SerializeToString()
    return content


WRITERS = {"onnx": onnx, "torchscript": torchscript, "state_dict": state_dict}


def example(trained: Trained) -> torch.Tensor:
    """Two inputs of the right shape."""
    tokens = trained.facts["stored"] == "int64"
    return torch.zeros((2, *trained.one_input("this form")), dtype=torch.int64 if tokens else torch.float32)


def facts(trained: Trained) -> str:
    return json.dumps(trained.facts, ensure_ascii=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Torch warns of its own parts here (TorchScript is old, torchvision is absent), which is no news to the user."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(before)
