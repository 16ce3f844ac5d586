"""Traits: what clients tell about their data, gathered through an engine; and what becomes of clients that fail."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from needs import needed
from rich.console import Console
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch import nn

import fedrelay as fr
from fedrelay import BadInput, Federation, RunFailed, Sgd, Task, advance, config, deployed, seeds, start
from fedrelay.algorithms import fedavg, fedseq
from fedrelay.data import Dirichlet, Examples, Natural, Source, digits, hold_out, quadratic
from fedrelay.engines import Inline
from fedrelay.models import CharLstm, LeNet5, Logistic, Mlp, Own, Quadratic
from fedrelay.plans import Grouping, Limits, Traits
from fedrelay.plans.grouping.distances import KullbackLeibler
from fedrelay.plans.grouping.groupers import Greedy, KMeans
from fedrelay.plans.grouping.icg import Icg
from fedrelay.plans.grouping.traits import gather, principal, similarity
from fedrelay.report.progress import follow
from fedrelay.runs import checkpoint
from fedrelay.runs.loop import ClientSurvey
from fedrelay.runs.measures import balance_ratio, covered_classes, group_counts
from fedrelay.tasks import Workspaces
from fedrelay.types import Baton, Kind, Report, Trait, Visit
from fedrelay.visits.probe_networks import (
    CausalTransformer,
    EfficientNetLite0,
    ImageNetResNet18,
    OwnFeatures,
    ResNet18File,
    SameModel,
)
from fedrelay.visits.traits import ClassHistogram, ClassifierWeights, Confidence, SeveralTraits, Task2Vec

LOCAL = Sgd(batch=16, lr=0.1)


def one_class_digits(clients: int = 40, model=None, exemplars: int = 5) -> Inline:
    source, public = hold_out(digits(), exemplars, seeds.rng(0, "exemplars"))
    federation = Federation.split(replace(source, public=public), Dirichlet(alpha=0.0), clients, 0)
    return Inline(federation, Task.of(model or Mlp(hidden=(16,)), federation), 0)


@pytest.fixture(scope="module")
def engine() -> Inline:
    return one_class_digits()


def survey(engine: Inline) -> ClientSurvey:
    return ClientSurvey(engine, engine.task.init(engine.seed))


def described(trait, engine: Inline) -> Traits:
    return gather(trait.trained_like(LOCAL), survey(engine), len(engine.sizes), seeds.rng(0))


def visit(engine: Inline, client: int = 0) -> tuple[Baton, Visit]:
    at = Visit(engine.federation.client(client), engine.task, {}, {}, 0, 0, 0, Workspaces(engine.task))
    return Baton(engine.task.init(0)), at


def test_the_histogram_is_the_clients_label_counts(engine):
    np.testing.assert_array_equal(described(ClassHistogram(), engine).rows, engine.federation.label_counts())


def test_the_histogram_of_sequences_counts_every_token_but_padding():
    y = torch.tensor([[1, 2, -100], [2, 2, 0], [3, -100, -100], [0, 0, 0]])
    source = Source("text", Examples(torch.zeros(4, 3, dtype=torch.long), y), Examples(y[:, :3] * 0, y), 4)
    federation = Federation.of(source, [np.array([0, 1]), np.array([2, 3])])
    engine = Inline(federation, Task(CharLstm(every_step=True), (3,), 4))
    np.testing.assert_array_equal(described(ClassHistogram(), engine).rows, [[1, 1, 3, 0], [3, 0, 0, 1]])


@pytest.mark.parametrize(
    ("layers", "numbers"), [("all", 1600 * 384 + 384 * 192 + 192 * 10), ("last2", 384 * 192 + 1920), ("last", 1920)]
)
def test_classifier_weights_are_those_of_the_linear_layers(layers, numbers):
    rows = torch.arange(8)
    images = Examples(torch.rand(8, 32, 32, 3), rows % 2)
    federation = Federation.of(Source("images", images, images, 10), [np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7])])
    engine = Inline(federation, Task.of(LeNet5(), federation))
    baton, at = visit(engine)
    _, _, report = ClassifierWeights(layers, epochs=1, local=Sgd(lr=0.0))(baton, at)
    assert report.uplink["trait"].shape == (numbers,)
    # with a learning rate of 0 they are the initial ones, which the network itself tells
    workspace = Workspaces(engine.task).main
    workspace.load(baton.params, training=False)
    linear = [module.weight.reshape(-1) for module in workspace.network.modules() if isinstance(module, nn.Linear)]
    expected = torch.cat(linear[{"all": 0, "last2": -2, "last": -1}[layers] :])
    assert torch.equal(report.uplink["trait"], expected.detach())


def test_traits_are_those_of_e_epochs_of_the_runs_own_training(engine):
    baton, at = visit(engine, 3)
    _, _, report = ClassifierWeights("model", epochs=3).trained_like(replace(LOCAL, epochs=7))(baton, at)
    expected, _, _ = replace(LOCAL, epochs=3)(baton, at)
    assert torch.equal(report.uplink["trait"], expected.params)
    assert report.examples == 3 * at.client.size


def test_several_traits_of_one_training_are_the_same_as_each_alone(engine):
    parts = (ClassifierWeights("last", epochs=2, local=LOCAL), Confidence(epochs=2, local=LOCAL))
    baton, at = visit(engine, 2)
    _, _, report = SeveralTraits(parts)(baton, at)
    for number, part in enumerate(parts):
        assert torch.equal(report.uplink[f"trait{number}"], part(baton, at)[2].uplink["trait"])
    assert report.examples == 2 * at.client.size


def test_a_trait_that_says_how_to_train_is_not_overruled():
    own = Sgd(lr=0.7)
    assert Confidence(local=own).trained_like(LOCAL).local == own
    assert Confidence().trained_like(LOCAL).local == LOCAL


@pytest.mark.parametrize("shape", [(30, 200), (60, 12)])
@pytest.mark.parametrize("standardise", [False, True])
def test_principal_components_are_scikit_learns_up_to_sign(shape, standardise):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=shape) * rng.gamma(0.3, size=shape[1]) + 5).astype(np.float32)
    reference = StandardScaler().fit_transform(rows.astype(np.float64)) if standardise else rows.astype(np.float64)
    expected = PCA(n_components=0.9, svd_solver="full").fit_transform(reference)
    found = principal(rows, 0.9, standardise=standardise)
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-3)


def test_one_class_per_client_needs_fewer_components_than_classes(engine):
    rows = described(ClassifierWeights("last"), engine).rows
    assert rows.shape[0] == 40
    assert rows.shape[1] < 10


def test_similarity_is_the_cosine_of_every_two_models():
    rows = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(similarity(rows), unit @ unit.T, atol=1e-6)


@pytest.mark.parametrize("rule", ["softmax", "published"])
def test_confidence_follows_the_equation(engine, rule):
    baton, at = visit(engine, 5)
    _, _, report = Confidence(epochs=2, rule=rule, local=LOCAL)(baton, at)
    trained, _, _ = replace(LOCAL, epochs=2)(baton, at)
    weights = engine.task.layout.pieces(trained.params)
    public = engine.task.public
    x, y = public.take(slice(0, len(public)))
    hidden = (x.flatten(1) @ weights["body.1.weight"].T + weights["body.1.bias"]).clamp(min=0)
    output = (hidden @ weights["head.weight"].T + weights["head.bias"]).double()
    if rule == "published":
        output = output.exp() / output.exp().sum(1, keepdim=True)
    means = torch.stack([output[y == label, label].mean() for label in range(10)])
    expected = means / means.sum() if rule == "published" else means.exp() / means.exp().sum()
    np.testing.assert_allclose(report.uplink["trait"], expected, rtol=1e-4)


def test_confidence_knows_the_class_of_a_client_of_one_class(engine):
    rows = described(Confidence(), engine).rows
    own = engine.federation.label_counts().argmax(axis=1)
    assert (rows.argmax(axis=1) == own).mean() > 0.9
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)


def test_confidence_without_exemplars_is_refused_before_any_client_works():
    bare = one_class_digits()
    federation = Federation.split(digits(), Dirichlet(alpha=0.0), 40, 0)
    bare = Inline(federation, Task.of(Mlp(), federation))
    with pytest.raises(BadInput, match="exemplars = 10 under \\[data\\]"):
        described(Confidence(), bare)


def test_the_exemplars_are_not_in_the_test_set():
    source, public = hold_out(digits(), 5, seeds.rng(0, "exemplars"))
    assert len(public) + len(source.test) == len(digits().test)


@pytest.mark.parametrize("trait", [ClassHistogram(), Confidence(), Task2Vec(SameModel()), ClassifierWeights()])
def test_a_task_without_classes_or_linear_layers_is_refused(trait):
    federation = Federation.split(quadratic(clients=3, dimension=2), Natural())
    federation = replace(federation, source=replace(federation.source, public=federation.source.test))
    with pytest.raises(BadInput):
        trait.check(Task.of(Quadratic(), federation))


@dataclass(frozen=True)
class Numbers(Trait):
    """A trait that says its client's number; misbehaves at the clients it is told to."""

    raising: frozenset[int] = field(default_factory=frozenset)
    spoiling: frozenset[int] = field(default_factory=frozenset)
    same: bool = False
    kind: ClassVar[Kind] = "weights"

    def check(self, task):
        pass

    def __call__(self, baton, at):
        client = at.client.id
        if client in self.raising:
            raise OSError(f"disk of {client} is full")
        value = float("nan") if client in self.spoiling else 1.0 if self.same else float(client % 4 == 0)
        return baton, at.memory, Report(client, 1, uplink={"trait": torch.tensor([value, 1.0])})


@pytest.fixture
def quadratics() -> Inline:
    federation = Federation.split(quadratic(clients=12, dimension=2, seed=2), Natural())
    return Inline(federation, Task.of(Quadratic(), federation))


def test_clients_that_fail_while_being_described_are_grouped_at_random_and_named(quadratics):
    trait = Numbers(raising=frozenset({3}), spoiling=frozenset({7}))
    algorithm = fr.method(fedseq(traits=trait, grouper=Greedy(), groups=3), local=Sgd(steps=1, lr=0.01))
    state = start(algorithm, quadratics)
    assert sorted(client for group in state.memo["groups"] for client in group) == list(range(12))
    assert [client for client, _ in state.memo["undescribed"]] == [3, 7]
    assert "OSError: disk of 3 is full" in state.memo["undescribed"][0][1]
    assert "not finite" in state.memo["undescribed"][1][1]
    after = advance(algorithm, quadratics, state)
    assert [missing.client for missing in after.log.undescribed] == [3, 7]
    assert advance(algorithm, quadratics, after).log.undescribed == ()


def test_a_client_without_a_trait_is_placed_at_random(quadratics):
    trait = Numbers(raising=frozenset({5}))
    found = [gather(trait, survey(quadratics), 12, np.random.default_rng(seed)).rows for seed in range(40)]
    borrowed = {tuple(rows[5]) for rows in found}
    assert borrowed == {(0.0, 1.0), (1.0, 1.0)}
    assert all((np.delete(rows, 5, 0) == np.delete(found[0], 5, 0)).all() for rows in found)


def test_a_run_in_which_nobody_can_be_described_stops_with_the_reasons(quadratics):
    with pytest.raises(RunFailed, match=r"no client could be described: client 0: OSError: disk of 0 is full"):
        described(Numbers(raising=frozenset(range(12))), quadratics)


def test_identical_traits_are_refused_with_what_to_do(quadratics):
    with pytest.raises(BadInput, match=r"all 12 clients have the same Numbers.*group at random"):
        described(Numbers(same=True), quadratics)


def test_the_command_line_names_those_who_could_not_be_described(quadratics, tmp_path):
    algorithm = fr.method(fedseq(traits=Numbers(raising=frozenset({3})), groups=3), local=Sgd(steps=1, lr=0.01))
    from fedrelay.runs.record import Recorder

    text = io.StringIO()
    recorder = Recorder(tmp_path / "run", algorithm, quadratics, quadratics.federation.test, rounds=1)
    follow(recorder, Console(file=text, width=300))
    assert "client 3 could not be described, so it is grouped at random: OSError: disk of 3" in text.getvalue()


def test_a_terminal_shows_how_far_the_describing_is(quadratics, tmp_path):
    from fedrelay.runs.record import Recorder

    text = io.StringIO()
    algorithm = fr.method(fedseq(traits=Numbers(), groups=3), local=Sgd(steps=1, lr=0.01))
    recorder = Recorder(tmp_path / "run", algorithm, quadratics, quadratics.federation.test, rounds=1)
    follow(recorder, Console(file=text, width=200, force_terminal=True))
    assert "describing" in text.getvalue()
    assert "12/12" in text.getvalue()


TABLES = {
    "rounds": 2,
    "data": {"name": "digits", "clients": 40, "partition": {"name": "dirichlet", "alpha": 0.0}, "exemplars": 5},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"batch": 16, "lr": 0.1},
}


@pytest.mark.parametrize(
    "choice",
    [
        {"traits": {"name": "confidence", "epochs": 5}, "distance": "kl", "grouper": "greedy"},
        {"traits": {"name": "classifier", "layers": "last"}, "distance": "cosine"},
        {"traits": "histogram", "grouper": "icg"},
        {"traits": {"name": "confidence", "local": {"lr": 0.2}}, "grouper": {"name": "kmeans", "clusters": 10}},
    ],
)
def test_a_configuration_names_trait_distance_and_grouper(choice, tmp_path):
    experiment = config.build({**TABLES, "algorithm": {"name": "fedseq", "groups": 4, **choice}})
    state = start(experiment.algorithm, experiment.engine)
    counts = group_counts(experiment.federation.label_counts(), state.memo["groups"])
    random = start(fr.method(fedseq(groups=4)), experiment.engine).memo["groups"]
    assert (
        balance_ratio(counts).mean() > balance_ratio(group_counts(experiment.federation.label_counts(), random)).mean()
    )
    assert covered_classes(counts).min() == 1
    # the resolved form builds the same, and the groups go through a checkpoint
    again = config.build(experiment.tables)
    assert again.algorithm == experiment.algorithm
    checkpoint.save(tmp_path, state, {})
    assert checkpoint.load(tmp_path)[0].memo["groups"] == state.memo["groups"]


@pytest.mark.parametrize("engine", ["pool", "stacked"])
def test_traits_and_groups_are_the_same_through_any_engine(engine):
    algorithm = {"name": "fedseq", "traits": {"name": "confidence", "epochs": 2}, "groups": 4}
    plain = config.build({**TABLES, "algorithm": algorithm})
    other = config.build({**TABLES, "algorithm": algorithm, "engine": {"name": engine}})
    found = [start(experiment.algorithm, experiment.engine).memo for experiment in (plain, other)]
    assert found[0]["groups"] == found[1]["groups"]
    assert found[1]["undescribed"] == ()


def test_a_meaningless_pair_in_a_configuration_is_refused_with_the_pairs_that_work():
    algorithm = {"name": "fedseq", "traits": "classifier", "distance": "kl"}
    with pytest.raises(BadInput, match=r"\[algorithm\]: distance kl has no meaning.*classifier.*with cosine"):
        config.build({**TABLES, "algorithm": algorithm})


@pytest.mark.parametrize("traits", [ClassHistogram(), Confidence(epochs=1)])
def test_groups_of_one_are_fedavg_to_the_bit_whatever_the_traits(engine, traits):
    def models(algorithm):
        state, found = start(algorithm, engine), []
        for _ in range(2):
            state = advance(algorithm, engine, state)
            found += deployed(state).vectors
        return found

    alone = models(fr.method(fedavg(), local=LOCAL, fraction=0.3))
    for grouper in (Greedy(), KMeans(), Icg()):
        grouped = models(fr.method(fedseq(traits=traits, grouper=grouper, max_clients=1), local=LOCAL, fraction=0.3))
        assert all(torch.equal(a, b) for a, b in zip(alone, grouped, strict=True))


def test_describing_leaves_no_trace_in_the_clients_memories(engine):
    start(fr.method(fedseq(traits=Confidence(epochs=1), groups=4), local=LOCAL), engine)
    assert engine.memories() == (0, {})


class TwoLayers(nn.Module):
    """Features A x, without activation, so that the information has a closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 5, bias=False)

    def forward(self, x):
        return self.layer(x.flatten(1))


def test_task2vec_is_the_diagonal_fisher_information_of_every_filter():
    federation = Federation.split(digits(), Dirichlet(alpha=5.0), 30, 0)
    engine = Inline(federation, Task.of(Logistic(), federation))
    torch.manual_seed(0)
    module = TwoLayers()
    work = Task2Vec(OwnFeatures(module), draws=4000, batch=4, samples=200, epochs=3)
    baton, at = visit(engine)
    body = work.probe(baton.params, at)
    rows = torch.arange(at.client.size)
    head = work.fit(body, at, rows, seeds.rng(0))
    found = work.information(body, head, at, rows, passes=400)
    x, _ = at.client.take(rows, None)
    x = x.flatten(1).double()
    weights, bias = head.weight.double(), head.bias.double()
    p = (x @ module.layer.weight.double().T @ weights.T + bias).softmax(1)
    covariance = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    # d log p(y) / d A_jk = (w_j · (e_y - p)) x_k, so its second moment is (w_j' S w_j) x_k²
    moments = torch.einsum("cj,ncd,dj->nj", weights, covariance, weights)
    expected = (moments[:, :, None] * x[:, None, :] ** 2).mean((0, 2))
    np.testing.assert_allclose(found, expected.detach(), rtol=0.1)


def test_task2vec_of_like_clients_is_more_alike():
    engine = one_class_digits(clients=20)
    rows = described(Task2Vec(SameModel(), samples=200, draws=100), engine).rows
    labels = engine.federation.label_counts().argmax(axis=1)
    cosine = rows @ rows.T / np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(rows, axis=1))
    same = (labels[:, None] == labels) & ~np.eye(20, dtype=bool)
    assert cosine[same].mean() > cosine[labels[:, None] != labels].mean() + 0.05


def test_the_offline_probe_takes_small_grey_images():
    needed("efficientnet_lite_pytorch")
    engine = one_class_digits(clients=10)
    work = Task2Vec(EfficientNetLite0(), samples=64, epochs=1, draws=1, most=4)
    work.check(engine.task)
    baton, at = visit(engine)
    _, _, report = work(baton, at)
    trait = report.uplink["trait"]
    assert trait.ndim == 1
    assert len(trait) > 10_000
    assert bool((trait >= 0).all())
    assert float(trait.sum()) > 0
    assert torch.equal(work(baton, at)[2].uplink["trait"], trait)


def test_the_weights_of_the_offline_probe_are_pretrained():
    needed("efficientnet_lite_pytorch")
    engine = one_class_digits(clients=10)
    baton, at = visit(engine)
    network = EfficientNetLite0()(baton.params, at).eval()
    with torch.no_grad():
        features = network(torch.rand(2, 1, 8, 8))
    assert features.shape == (2, 1280)
    assert 0.1 < float((features > 0).float().mean()) < 0.9
    assert sum(p.numel() for p in network.parameters()) == 4_652_008 - 1281 * 1000  # the published network, headless


def test_a_resnet18_is_read_from_a_file_in_torchvisions_form(tmp_path):
    torch.manual_seed(0)
    network = ImageNetResNet18()
    # torchvision's resnet18 has 11,689,512 parameters, of which its last layer, fc, has 513,000
    assert sum(p.numel() for p in network.parameters()) == 11_689_512 - 513_000
    path = tmp_path / "resnet18.pth"
    torch.save({**network.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}, path)
    engine = one_class_digits(clients=10)
    work = Task2Vec(ResNet18File(str(path), side=32), samples=64, epochs=1, draws=1, most=4)
    work.check(engine.task)
    _, _, report = work(*visit(engine))
    assert float(report.uplink["trait"].sum()) > 0
    with pytest.raises(BadInput, match="there is no file"):
        ResNet18File(str(tmp_path / "absent.pth"))
    torch.save({"conv1.weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(BadInput, match="does not hold ResNet-18 weights"):
        Task2Vec(ResNet18File(str(tmp_path / "other.pth"))).check(engine.task)


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("network", [SameModel(), CausalTransformer(width=16, layers=1, heads=2)])
def test_task2vec_takes_text(network, every_step):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 12, (30, 6)))
    y = torch.from_numpy(rng.integers(0, 12, (30, 6) if every_step else 30))
    if every_step:
        y[:, -1] = -100
    source = Source("text", Examples(x, y), Examples(x, y), 12)
    federation = Federation.of(source, [np.arange(10), np.arange(10, 30)])
    model = CharLstm(embedding=4, hidden=8, layers=1, every_step=every_step)
    engine = Inline(federation, Task.of(model, federation))
    rows = described(Task2Vec(network, samples=32, epochs=1, draws=5), engine).rows
    assert rows.shape[0] == 2
    assert (rows >= 0).all()
    assert (rows.sum(axis=1) > 0).all()
    with pytest.raises(BadInput, match="efficientnet_lite0 takes images"):
        Task2Vec().check(engine.task)


def test_a_causal_transformer_does_not_look_ahead():
    x = torch.randint(0, 12, (1, 6), generator=torch.Generator().manual_seed(0))
    text = Examples(x, torch.zeros(1, dtype=torch.long))
    federation = Federation.of(Source("text", text, text, 12), [np.arange(1)])
    baton, at = visit(Inline(federation, Task.of(CharLstm(), federation)))
    network = CausalTransformer(width=16, layers=2, heads=2)(baton.params, at).eval()
    changed = x.clone()
    changed[0, 4] = (changed[0, 4] + 1) % 12
    with torch.no_grad():
        before, after = network(x), network(changed)
    assert torch.allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_the_model_itself_as_probe_must_say_what_its_head_is():
    federation = Federation.split(digits(), Dirichlet(alpha=1.0), 5, 0)
    task = Task.of(Own(nn.Sequential(nn.Flatten(), nn.Linear(64, 10))), federation)
    with pytest.raises(BadInput, match=r"give Task2Vec a probe.*OwnFeatures"):
        Task2Vec(SameModel()).check(task)


def test_a_probe_of_images_refuses_a_missing_package(engine, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'fedrelay\[probe\]'"):
        Task2Vec().check(engine.task)


def test_a_grouping_can_be_used_without_a_run(engine):
    grouping = Grouping(ClassHistogram(), KullbackLeibler(), Greedy())
    traits = grouping.learn(survey(engine), engine.sizes, seeds.rng(0))
    groups = grouping(Traits.of(traits.tree()), engine.sizes, Limits(groups=4), seeds.rng(0))
    assert covered_classes(group_counts(engine.federation.label_counts(), groups)).min() == 1
