"""What private releases add up to: epsilon and delta, by closed form or by the accountants of Opacus."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from typing import Any

from fedrelay.errors import BadInput

WIDEST = 1e4
"""No epsilon above this is told apart: it promises nothing."""


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The delta that goes with an epsilon under mu-Gaussian differential privacy (Dong et al. 2022, Cor. 2.13)."""
    if not mu:
        return 0.0
    from scipy.special import log_ndtr, ndtr  # here, as below: whoever has no privacy does not wait for SciPy

    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon that goes with this delta under mu-Gaussian differential privacy; infinite beyond all
    use."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if mu > math.sqrt(WIDEST) or gaussian_delta(WIDEST, mu) > delta:
        return math.inf
    from scipy.optimize import brentq

    return float(brentq(lambda epsilon: gaussian_delta(epsilon, mu) - delta, 0.0, WIDEST, xtol=1e-10))


def epsilon_of_visits(noise: float, visits: int, delta: float) -> float:
    """What so many Gaussian releases of one client add up to, each of sensitivity 1 and deviation `noise`: they are
    √visits / noise-Gaussian private together, which is exact."""
    if not visits:
        return 0.0
    return gaussian_epsilon(math.sqrt(visits) / noise, delta) if noise else math.inf


def noise_for_visits(epsilon: float, visits: int, delta: float) -> float:
    """The least noise with which so many releases stay within this epsilon."""
    from scipy.optimize import brentq

    mu = brentq(lambda mu: gaussian_delta(epsilon, mu) - delta, 1e-9, 2 * math.sqrt(epsilon) + 20, xtol=1e-14)
    return math.sqrt(visits) / float(mu)


def epsilon_of_steps(noise: float, rate: float, steps: int, delta: float) -> float:
    """What so many steps of DP-SGD add up to, with batches drawn by Poisson sampling at this rate: the tighter of two
    upper bounds, by privacy loss variables (Gopi et al. 2021) and by Rényi divergence (Mironov et al. 2019)."""
    if not steps:
        return 0.0
    if not noise:
        return math.inf
    if rate >= 1:
        return epsilon_of_visits(noise, steps, delta)
    return min(numerical_epsilon(noise, rate, steps, delta), renyi_epsilon(noise, rate, steps, delta))


def noise_for_steps(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The noise, to a hundredth of it, with which so many steps stay within this epsilon."""
    low, high = 0.0, 1.0
    while epsilon_of_steps(high, rate, steps, delta) > epsilon:
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon_of_steps(middle, rate, steps, delta) <= epsilon else (middle, high)
    return high


def worst_epsilon(noise: float, clients: set[tuple[float, int]], delta: float) -> float:
    """The largest epsilon among clients with these rates and numbers of steps. Those whose bound by Rényi divergence,
    which is quick, is no larger than what was found need no other."""
    bounds = {one: quick_epsilon(noise, *one, delta) for one in clients}
    worst = 0.0
    for one, bound in sorted(bounds.items(), key=lambda item: -item[1]):
        if bound <= worst:
            break
        worst = max(worst, epsilon_of_steps(noise, *one, delta))
    return worst


def quick_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """An upper bound that takes little time."""
    if rate >= 1 or not noise or not steps:
        return epsilon_of_steps(noise, rate, steps, delta)
    return renyi_epsilon(noise, rate, steps, delta)


@lru_cache(maxsize=10_000)
def numerical_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """By privacy loss variables; infinite where they cannot be computed (far too little noise)."""
    accountant = accountants().PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = float(accountant.get_epsilon(delta))
    except (RuntimeError, ValueError, OverflowError, MemoryError):
        return math.inf
    return found if math.isfinite(found) else math.inf


@lru_cache(maxsize=1000)
def renyi_divergences(noise: float, rate: float) -> Any:
    """Of one step, at the orders that Opacus looks at."""
    rdp = accountants().analysis.rdp
    orders = accountants().RDPAccountant.DEFAULT_ALPHAS
    return rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=orders)


def renyi_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """By Rényi divergence."""
    each, orders = renyi_divergences(noise, rate), accountants().RDPAccountant.DEFAULT_ALPHAS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so when the best order is the largest it looks at
        found, _ = accountants().analysis.rdp.get_privacy_spent(orders=orders, rdp=each * steps, delta=delta)
    return float(found)


@lru_cache(maxsize=1)
def accountants() -> Any:
    """Opacus takes seconds to import, so only whoever counts steps does."""
    try:
        from opacus import accountants as found
    except ImportError:
        raise BadInput(
            "privacy at the level of examples is accounted for by Opacus, which is not installed: pip install "
            "'fedrelay[privacy]'"
        ) from None
    return found
