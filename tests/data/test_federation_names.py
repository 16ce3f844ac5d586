"""What clients are called, and how a federation prints."""

from __future__ import annotations

import numpy as np
import torch

import fedrelay as fr
from fedrelay.data import Examples, Federation, Iid, Natural, Source
from fedrelay.data.own import from_arrays


def source(owners: list[int], names: tuple[str, ...]) -> Source:
    part = Examples(torch.zeros(len(owners), 2), torch.zeros(len(owners), dtype=torch.int64))
    return Source("wards", part, part, 2, owners=np.array(owners), owner_names=names, class_names=("well", "ill"))


def test_natural_clients_are_called_as_their_owners():
    federation = Federation.split(source([1, 0, 1, 2], ("north", "south", "east")), Natural())
    assert federation.names == ("north", "south", "east")


def test_clients_with_examples_of_several_owners_are_numbered():
    federation = Federation.of(source([0, 0, 1, 1], ("north", "south")), [np.array([0, 2]), np.array([3])])
    assert federation.names == ("client 0", "south")


def test_several_clients_of_one_owner_are_told_apart():
    federation = Federation.of(source([0, 0, 1], ("north", "south")), [np.array([0]), np.array([1]), np.array([2])])
    assert federation.names == ("north (0)", "north (1)", "south")


def test_clients_of_data_without_owners_are_numbered():
    federation = Federation.split(fr.data.digits(), Iid(), 3)
    assert federation.names == ("client 0", "client 1", "client 2")


def test_a_federation_prints_in_five_lines():
    rows = np.zeros((5, 3), dtype=np.float32)
    clients = {
        f"hospital {letter}": (rows[:count], np.zeros(count, dtype=int)) for letter, count in {"A": 2, "B": 5}.items()
    }
    federation = from_arrays(clients, test=(rows, np.ones(5, dtype=int)), class_names=("well", "ill"), name="wards")
    assert str(federation).splitlines() == [
        "Federation of wards: 2 clients, 7 examples to train on, 5 to test on",
        "  inputs   (3,) of float32",
        "  classes  2: well, ill",
        "  sizes    2 to 5, the median 3.5",
        "  clients  hospital A, hospital B",
    ]


def test_a_federation_of_very_many_clients_prints_in_five_lines_too():
    federation = Federation.split(fr.data.digits(), Iid(), 500)
    assert len(repr(federation).splitlines()) == 5
    assert max(map(len, repr(federation).splitlines())) < 120
