"""40,000 clients over one data set add less than 64 MB and are there in under 10 seconds."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fedrelay.data import PARTITIONS, Federation, Source, synthetic

CLIENTS, EXAMPLES = 40_000, 400_000


@pytest.fixture(scope="module")
def source() -> Source:
    made = synthetic(examples=EXAMPLES, shape=(1,), classes=62, test_examples=10)
    assert len(made.train.labels) == EXAMPLES  # made once and kept; it belongs to the data, not to the clients
    return replace(made, owners=np.arange(EXAMPLES) * 7919 % CLIENTS)


@pytest.mark.parametrize("partition", ["iid", "natural", "dirichlet", "dirichlet_clients"])
def test_forty_thousand_clients_are_there_in_seconds(partition: str, source: Source) -> None:
    start = time.process_time()  # one thread does it all, and other work on the machine must not count
    federation = Federation.split(source, PARTITIONS[partition](), CLIENTS)
    sizes = [federation.client(client).size for client in range(CLIENTS)]
    seconds = time.process_time() - start
    assert sum(sizes) == EXAMPLES
    assert min(sizes) >= 1
    assert seconds < 10


@pytest.mark.parametrize("partition", ["natural", "dirichlet"])
def test_forty_thousand_clients_add_little_memory(partition: str, source: Source) -> None:
    tracemalloc.start()  # NumPy's arrays are counted, and torch only looks at them
    try:
        federation = Federation.split(source, PARTITIONS[partition](), CLIENTS)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(federation.sizes) == CLIENTS
    # At least the rows themselves must have been seen, or this measures nothing.
    assert kept >= EXAMPLES * 8
    assert peak < 64e6
