"""The model of a finished run, whoever wrote its network."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from fedrelay.config import catalogue
from fedrelay.runs import output


def load_trained(folder: Path | str) -> output.Trained:
    """The model of the run in this folder; its network may be one of another package, by an entry point."""
    catalogue.extend()
    return output.load_trained(folder)


def load_model(folder: Path | str, *, network: nn.Module | None = None, client: str | None = None) -> nn.Module:
    """The network that a finished run has trained, ready to predict.

    Args:
        folder: The run's folder.
        network: Your own network, if the run trained one; a copy of it is filled with the weights.
        client: The client whose own model is wanted, where a method gives clients models of their own.

    Returns:
        A module that takes inputs as the network does (scaled: see `transform` in model.json) and returns logits.
    """
    return load_trained(folder).network(network, client=client)
