"""A workload as tensors, one pair per client (or superclient), for the peers."""

from __future__ import annotations

import torch
from workloads import Workload


def clients(work: Workload) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """No peer has chains: there, the clients of a superclient are one client with all their examples, in sequence."""
    x, y = (torch.from_numpy(part) for part in work.data())
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    size = work.size * work.chain
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x) - size + 1, size)]
