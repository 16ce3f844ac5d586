"""FedJAX 0.0.17: its own federated averaging, jitted; for dense networks only.

JAX's convolutions on a CPU are two orders of magnitude slower than everybody else's: that would only make us look good.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree_util.tree_map  # the name that FedJAX, which is older than this JAX, knows it by

import fedjax  # noqa: E402
import haiku  # noqa: E402
from gate import Gate  # noqa: E402
from workloads import LR, WORKLOADS  # noqa: E402


def main() -> None:
    work = WORKLOADS[sys.argv[1]]
    x, y = work.data()
    size = work.size
    data = [
        fedjax.ClientDataset({"x": x[i : i + size], "y": y[i : i + size].astype(np.int32)})
        for i in range(0, len(x), size)
    ]
    net = haiku.without_apply_rng(haiku.transform(lambda batch: forward(batch, work.model)))

    def loss(params, batch, rng):
        logits = net.apply(params, batch["x"])
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], axis=1))

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs),
    )
    state = algorithm.init(net.init(jax.random.PRNGKey(0), data[0].all_examples()["x"][:2]))
    gate = Gate(version=f"0.0.17, jax {jax.__version__}", setting="jit backend, XLA's threads")
    rng, key = np.random.default_rng(0), jax.random.PRNGKey(1)
    while True:
        drawn = rng.choice(len(data), work.per_round, replace=False)
        key, *keys = jax.random.split(key, len(drawn) + 1)
        state, _ = algorithm.apply(state, [(c, data[c], k) for c, k in zip(drawn.tolist(), keys, strict=True)])
        jax.block_until_ready(state.params)
        gate.tick()


def forward(batch, model: str):
    if model == "mlp":
        batch = jax.nn.relu(haiku.Linear(50)(batch))
    return haiku.Linear(10)(batch)


if __name__ == "__main__":
    main()
