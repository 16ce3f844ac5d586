"""How a data set is cut into clients: one array of training rows per client, deterministic from the generator."""

from fedrelay.data.federation import Partition
from fedrelay.data.partitions.basic import Dirichlet, Iid, Natural, Shards
from fedrelay.data.partitions.binned import Quantiles
from fedrelay.data.partitions.per_client import DirichletClients, Domains, OneClass, QuantitySkew

PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "natural": Natural,
    "dirichlet_clients": DirichletClients,
    "quantity_skew": QuantitySkew,
    "one_class": OneClass,
    "domains": Domains,
    "quantiles": Quantiles,
}

__all__ = [
    "PARTITIONS",
    "Dirichlet",
    "DirichletClients",
    "Domains",
    "Iid",
    "Natural",
    "OneClass",
    "Quantiles",
    "QuantitySkew",
    "Shards",
]
