"""A client's whole training outside the interpreter, for networks that are a plain sequence of dense layers, with
convolutions or LSTM layers before them or without; and large convolutions of 3 x 3 of any network.

The C files beside this one are compiled when fedrelay is installed where there is a C compiler; without them everything
runs as ever. They round otherwise than the operators of PyTorch do, so whoever takes them says so (`[engine] native =
true`).
"""

from fedrelay.kernels.native.dense import KINDS, Dense, draws_orders, passes
from fedrelay.kernels.native.filtering import Filtering, filters
from fedrelay.kernels.native.library import Found, available, check, found
from fedrelay.kernels.native.looking import Looking
from fedrelay.kernels.native.sequence import Rule, dense_layers
from fedrelay.kernels.native.visits import Way, WholeVisits

__all__ = [
    "KINDS",
    "Dense",
    "Filtering",
    "Found",
    "Looking",
    "Rule",
    "Way",
    "WholeVisits",
    "available",
    "check",
    "dense_layers",
    "draws_orders",
    "filters",
    "found",
    "passes",
]
