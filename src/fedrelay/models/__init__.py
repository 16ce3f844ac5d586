"""The networks, by the name they have in a configuration."""

from __future__ import annotations

from fedrelay.models.cnn import ClusteredCnn, FedelmyCnn, FemnistCnn, LeafCnn, LeNet5, PflCnn, SmallCnn
from fedrelay.models.dense import Logistic, Mlp, MlpNorm
from fedrelay.models.fused import Fused
from fedrelay.models.lstm import CharLstm, WordLstm
from fedrelay.models.network import Model, Network
from fedrelay.models.open import Open
from fedrelay.models.own import Own
from fedrelay.models.quadratic import Quadratic
from fedrelay.models.resnet import ResNet18

MODELS: dict[str, type[Model]] = {
    "logistic": Logistic,
    "mlp": Mlp,
    "mlp_norm": MlpNorm,
    "quadratic": Quadratic,
    "small_cnn": SmallCnn,
    "lenet5": LeNet5,
    "femnist_cnn": FemnistCnn,
    "leaf_cnn": LeafCnn,
    "clustered_cnn": ClusteredCnn,
    "fedelmy_cnn": FedelmyCnn,
    "pfl_cnn": PflCnn,
    "resnet18": ResNet18,
    "char_lstm": CharLstm,
    "word_lstm": WordLstm,
}

__all__ = [
    "MODELS",
    "CharLstm",
    "ClusteredCnn",
    "FedelmyCnn",
    "FemnistCnn",
    "Fused",
    "LeNet5",
    "LeafCnn",
    "Logistic",
    "Mlp",
    "MlpNorm",
    "Model",
    "Network",
    "Open",
    "Own",
    "PflCnn",
    "Quadratic",
    "ResNet18",
    "SmallCnn",
    "WordLstm",
]
