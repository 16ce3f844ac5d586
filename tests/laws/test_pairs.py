"""Pairs of methods by name: which go together, what they take and tell, and which are refused and why."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
import tomli_w
import torch

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, adapted, config, deployed, train
from fedrelay.algorithms import ALGORITHMS, fedfusion, fedmmd
from fedrelay.algorithms.feddyn import DynamicMerge
from fedrelay.algorithms.scaffold import ControlMerge
from fedrelay.data import Dirichlet, digits
from fedrelay.merges import Mean, Median, PlainMean
from fedrelay.models import Mlp
from fedrelay.plans.sampling import SAMPLERS
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Visit
from fedrelay.visits import Proximal

TABLES = {
    "data": {"name": "digits", "clients": 12, "partition": {"name": "dirichlet", "alpha": 0.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"batch": 16, "lr": 0.1},
}
CHANGES = {name: row.recipe() for name, row in ALGORITHMS.items()}
PLANS = [name for name, it in CHANGES.items() if it.plan and not (it.terms or it.merge or it.pooled)]
METHODS = [name for name, it in CHANGES.items() if it.plan is None and (it.terms or it.merge or it.private)]
LATE = "chains that are late are given up"
MEANINGLESS = {
    ("fedasyncseq", "scaffold"): LATE,
    ("fedasyncseq", "feddyn"): LATE,
    ("fedcyclic", "ida"): "compares several chains",
    ("fedgsp", "fedov"): "both say the fraction",
}


def refusal(plan: str, method: str) -> str | None:
    """Why the pair must be refused, by what its parts say of themselves."""
    one, other = CHANGES[plan], CHANGES[method]
    if one.barrier is not None and other.merge is not None and other.merge.needs_everyone:
        return LATE
    if one.plan.one_chain and other.merge is not None and other.merge.least_chains > 1:
        return "compares several chains"
    if None not in (one.fraction, other.fraction) and one.fraction != other.fraction:
        return "both say the fraction"
    return None


def built(name: str, **settings):
    return config.build({**TABLES, "algorithm": {"name": name, **settings}}).algorithm


def trains(experiment) -> bool:
    """Whether two rounds change the model, and nobody is lost."""
    states = list(train(experiment.algorithm, experiment.engine, rounds=2))
    return not np.array_equal(*(deployed(state).params for state in states)) and not any(s.log.drops for s in states)


def test_methods_that_only_plan_and_methods_that_only_train_or_merge_are_told_apart():
    plans = "fedseq fedseqinter fedasyncseq fedseq2par fedgsp naivegsp naivegsp_icg fedcyclic"
    training = "fedprox scaffold feddyn fedsam moon fedmmd fedfusion fedbn fedper fedrep"
    merging = "fednova ida fedavgm fedadagrad fedadam fedyogi"
    assert set(plans.split()) <= set(PLANS)
    assert set(f"{training} {merging}".split()) <= set(METHODS)
    assert not set(PLANS) & set(METHODS)


def test_the_pairs_that_make_no_sense_are_those_we_know():
    for (plan, method), reason in MEANINGLESS.items():
        assert refusal(plan, method) == reason


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", METHODS)
def test_every_plan_goes_with_every_method_by_name(plan, method):
    model = {"name": ALGORITHMS[method].model, "hidden": [8]}
    tables = {**TABLES, "model": model, "algorithm": {"name": f"{plan}+{method}"}, "engine": {"name": "inline"}}
    reason = refusal(plan, method)
    if reason is not None:
        with pytest.raises(BadInput, match=reason):
            config.build(tables)
        return
    first = config.build(tables)
    again = config.build(tomllib.loads(tomli_w.dumps(first.tables)))
    assert again.algorithm == first.algorithm
    assert again.tables == first.tables
    alone = config.build({**TABLES, "algorithm": {"name": plan}}).algorithm
    assert first.algorithm.plan == alone.plan
    assert first.algorithm != alone
    assert trains(first)


@pytest.mark.parametrize(
    "name",
    [
        "fedmmd+fedfusion",
        "fedfusion+fedmmd",
        "moon+fedmmd",
        "moon+fedfusion",
        "fedprox+fednova",
        "moon+scaffold+fedsam",
    ],
)
def test_methods_that_only_add_terms_go_together_by_name(name):
    assert trains(config.build({**TABLES, "algorithm": {"name": name}, "engine": {"name": "inline"}}))


@pytest.mark.parametrize("sampler", ["md", "by_size", "by_similarity", "target"])
@pytest.mark.parametrize(
    "name",
    ["scaffold", "feddyn", "fedprox", "fedadam", "fedfusion", "ida", "fedseq+scaffold", "fedseqinter+feddyn"],
)
def test_methods_go_with_samplers(name, sampler):
    settings = {"name": name, "sampler": sampler, "fraction": 0.5}
    assert trains(config.build({**TABLES, "algorithm": settings, "engine": {"name": "inline"}}))


@pytest.mark.parametrize("sampler", ["md", "by_size", "by_similarity", "target"])
def test_fast_groups_are_drawn_by_any_sampler_too(sampler):
    settings = {"name": "fedasyncseq", "sampler": sampler, "fraction": 0.5, "max_clients": 2, "period": 4}
    experiment = config.build({**TABLES, "algorithm": settings, "latency": {}, "engine": {"name": "inline"}})
    assert experiment.algorithm.plan.groups.sampler == SAMPLERS[sampler]()
    states = list(train(experiment.algorithm, experiment.engine, rounds=6, latency=experiment.latency))
    assert any(state.waiting for state in states)


def test_parameters_of_both_are_taken():
    both = built("fedseq+feddyn", fraction=0.5, max_clients=4, alpha=0.25)
    assert both.plan.fraction == 0.5
    assert both.merge == DynamicMerge(0.25)


def test_every_method_whose_merge_is_the_mean_takes_another_and_another_sampler():
    for name in ("fedavg", "fedseq", "fedprox", "fedsam"):
        assert built(name, merge="median").merge == Median()
    assert built("fedseqinter", merge="plain_mean").merge.merge == PlainMean()
    sampler = SAMPLERS["multinomial"]() if "multinomial" in SAMPLERS else SAMPLERS["md"]()
    name = next(key for key, value in SAMPLERS.items() if value is type(sampler))
    assert built("fedprox", sampler=name).plan.sampler == sampler
    assert built("scaffold", sampler=name).merge == ControlMerge()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "fedseq+fedcyclic"}, r"fedseq \+ fedcyclic: both say who trains after whom"),
        ({"name": "scaffold+feddyn"}, r"scaffold \+ feddyn: both say how models are merged"),
        ({"name": "fedadam+fedyogi"}, "both say how models are merged"),
        ({"name": "centralized+fedprox"}, "the reference without federation"),
        ({"name": "fedseq+fedseq"}, "names a method twice"),
        ({"name": "fedseq+fedprx"}, "unknown name 'fedprx'; did you mean 'fedprox'"),
        ({"name": "fedseq+"}, "unknown name ''"),
        ({"name": "fedcyclic", "merge": "median"}, "compares several chains, and here all clients are one chain"),
        ({"name": "fedcyclic+ida"}, "compares several chains"),
        ({"name": "feddyn", "merge": "median"}, "both say how models are merged"),
        ({"name": "fedasyncseq+scaffold"}, "chains that are late are given up"),
        ({"name": "fedasyncseq+feddyn"}, "chains that are late are given up"),
        ({"name": "fedasyncseq", "sampler": "full"}, "takes everybody at once"),
        ({"name": "fedseqinter", "sampler": "original"}, "original needs the merge with_absent"),
        ({"name": "fedcyclic", "sampler": "original"}, "original needs the merge with_absent"),
        ({"name": "fedseqinter", "merge": "with_absent"}, "here models are merged after several"),
        ({"name": "fedasyncseq+fedprox", "merge": "with_absent"}, "here models are merged after several"),
        ({"name": "fedseq", "merge": "with_absent", "laps": 2}, "here laps count them several times"),
        (
            {"name": "fedseq", "merge": "with_absent", "sampler": "full", "laps": 2},
            "here laps count them several times",
        ),
        ({"name": "fedadam+fedavgm", "server_lr": 0.1}, "server_lr is a parameter of fedadam and of fedavgm"),
        ({"name": "fedseq+fedprox", "nu": 0.1}, "unknown key 'nu'; did you mean 'mu'"),
        ({"name": "fedprox", "mu": -1}, "mu must be at least 0"),
        (
            {"name": "fedavg", "merge": {"name": "krum", "suspects": -1}},
            r"\[algorithm\].merge: suspects must be at least 0",
        ),
        ({"name": "fedavg", "merge": "medain"}, r"\[algorithm\].merge: unknown name 'medain'; did you mean 'median'"),
        ({"name": "centralized", "merge": "median"}, "unknown key 'merge'"),
    ],
)
def test_pairs_without_a_meaning_are_refused_with_the_reason(settings, message):
    with pytest.raises(BadInput, match=message):
        config.build({**TABLES, "algorithm": settings})


# --- what a pair by name takes and tells


def test_a_pair_by_name_takes_and_tells_the_parameters_of_both():
    def section(**settings):
        made = config.build({**TABLES, "algorithm": {"name": "fedseq+fedprox", **settings}})
        return made.algorithm, made.tables["algorithm"]

    algorithm, told = section(mu=0.2, merge="plain_mean")
    assert algorithm.update.terms == (Proximal(0.2),)
    assert algorithm.merge == PlainMean()
    assert told == {
        "name": "fedseq+fedprox",
        "laps": 1,
        "reshuffle": False,
        "mu": 0.2,
        "fraction": 1.0,
        "sampler": {"name": "uniform"},
        "merge": {"name": "plain_mean"},
    }
    assert section()[0].merge == Mean()
    assert section()[1].keys() == told.keys() - {"merge"}


# --- FedMMD with FedFusion


def test_fedmmd_with_fedfusion_adds_the_discrepancy_of_the_fused_features():
    """Two steps of both by hand: the received features are held fast on one side of the fusion, and what the head gets
    is compared with what the received model's head would get."""
    algorithm = fr.method(fedmmd(weight=5.0, widths=(1.0,)), fedfusion(), local=Sgd(steps=2, batch=0, lr=0.5))
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 12, 1)
    task = adapted(algorithm, Task.of(Mlp(hidden=(8,)), federation))
    received, client = task.init(1), federation.client(0)
    visit = Visit(client, task, {}, {}, 1, 0, 0, Workspaces(task))
    found = algorithm.update(Baton(received), visit)[0].params
    x, y = client.take(torch.arange(client.size), None)
    expected = fused_steps(task.layout.pieces(received), x.flatten(1).double(), y, weight=5.0)
    alone = fused_steps(task.layout.pieces(received), x.flatten(1).double(), y, weight=0.0)
    for name, piece in task.layout.pieces(found).items():
        np.testing.assert_allclose(piece, expected[name], atol=2e-6, err_msg=name)
    assert max(float((expected[name] - alone[name]).abs().max()) for name in alone) > 1e-3


def fused_steps(start, x, y, *, weight):
    """Two steps of 0.5 on cross-entropy plus the discrepancy, for 64 inputs, 8 features, fused by a matrix."""
    fixed = {name: piece.detach().double().clone() for name, piece in start.items()}
    own = {name: piece.clone() for name, piece in fixed.items()}
    first_weight, first_bias, mix_weight, mix_bias, head_weight, head_bias = own

    def extract(w):
        return torch.relu(x @ w[first_weight].T + w[first_bias])

    def fuse(w, a, b):
        return torch.cat((a, b), 1) @ w[mix_weight].T + w[mix_bias]

    def kernel(a, b):
        return torch.exp(-(a[:, None] - b[None]).square().sum(-1) / 2).mean()

    for _ in range(2):
        leaves = {name: piece.clone().requires_grad_() for name, piece in own.items()}
        fused, before = fuse(leaves, extract(leaves), extract(fixed)), fuse(fixed, extract(fixed), extract(fixed))
        logits = fused @ leaves[head_weight].T + leaves[head_bias]
        loss = (logits.logsumexp(1) - logits[torch.arange(len(y)), y]).mean()
        loss = loss + weight * (kernel(fused, fused) + kernel(before, before) - 2 * kernel(fused, before))
        for (name, piece), slope in zip(leaves.items(), torch.autograd.grad(loss, leaves.values()), strict=True):
            own[name] = (piece - 0.5 * slope).detach()
    return own
