"""Data sets and loaders of torch, one per client: the same models as from arrays, and what is refused."""

from __future__ import annotations

import random
from itertools import count, cycle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import fedrelay as fr
from fedrelay import BadInput, Federation, Sgd, Task, evaluate
from fedrelay.algorithms import fedseq
from fedrelay.data import Examples, from_arrays, from_datasets, from_loaders
from fedrelay.data.stores.datasets import DatasetExamples
from fedrelay.engines import Inline, Pool, Stacked
from fedrelay.models import Logistic, Own, SmallCnn
from fedrelay.tasks import Workspaces


class Items(Dataset):
    """A list of items, read one by one."""

    def __init__(self, items) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        return self.items[index]


class Noisy(Items):
    """Adds noise of all three global generators to every input, at every access."""

    def __getitem__(self, index: int):
        x, y = self.items[index]
        return x + 0.1 * (torch.randn(x.shape) + float(np.random.standard_normal()) + random.random()), y  # noqa: NPY002


class Endless(IterableDataset):
    def __iter__(self):
        return ((torch.zeros(4), 0) for _ in count())


class Stream(IterableDataset):
    def __init__(self, items) -> None:
        self.items = items

    def __iter__(self):
        return iter(self.items)


def arrays(examples: int, seed: int, shape: tuple[int, ...] = (4,)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.normal(size=(examples, *shape)).astype(np.float32), rng.integers(0, 3, examples)


def hospitals(shape: tuple[int, ...] = (4,)) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {"north": arrays(13, 1, shape), "south": arrays(7, 2, shape), "east": arrays(22, 3, shape)}


def items(pair, kind=Items):
    return kind([(torch.from_numpy(x), int(y)) for x, y in zip(*pair, strict=True)])


METHOD = fr.method(fedseq(max_clients=2), local=Sgd(lr=0.2, epochs=2, batch=5), fraction=1.0)


def trained(federation: Federation, model=None, engine=Inline, **options) -> torch.Tensor:
    task = Task.of(model or Logistic(), federation)
    runner = engine(federation, task, 7, **options)
    *_, state = fr.train(METHOD, runner, rounds=2)
    runner.close()
    return fr.deployed(state, METHOD).vectors[0]


# --- the same as arrays ----------------------------------------------------------------------------------------------


def test_data_sets_give_the_model_that_arrays_give_to_the_bit():
    expected = from_arrays(hospitals())
    found = from_datasets({name: items(pair) for name, pair in hospitals().items()})
    assert isinstance(found.source.train, DatasetExamples)
    assert (found.names, found.sizes) == (expected.names, expected.sizes)
    assert found.fingerprint == expected.fingerprint
    assert torch.equal(trained(found), trained(expected))


def test_images_of_data_sets_give_the_model_that_image_arrays_give_to_the_bit():
    images = hospitals((8, 8, 3))
    sets = {name: items((x.transpose(0, 3, 1, 2).copy(), y)) for name, (x, y) in images.items()}
    expected, found = from_arrays(images), from_datasets(sets)
    assert found.source.train.shape == expected.source.train.shape == (3, 8, 8)
    assert torch.equal(trained(found, SmallCnn()), trained(expected, SmallCnn()))


def test_data_sets_give_the_same_bits_in_worker_processes():
    federation = from_datasets({name: items(pair, Noisy) for name, pair in hospitals().items()})
    alone = trained(federation)
    assert torch.equal(trained(federation, engine=Pool, workers=2), alone)


def test_data_sets_are_stacked_within_rounding():
    federation = from_datasets({name: items(pair) for name, pair in hospitals().items()})
    assert torch.allclose(trained(federation, engine=Stacked), trained(federation), atol=1e-5)


def test_evaluation_is_the_same_as_of_arrays():
    expected = from_arrays(hospitals())
    found = from_datasets({name: items(pair) for name, pair in hospitals().items()})
    figures = []
    for federation in (expected, found):
        task = Task.of(Logistic(), federation)
        figures.append(evaluate(task.init(0), federation.test, Workspaces(task)))
    assert figures[0] == figures[1]


def test_loaders_give_the_model_that_their_data_sets_give():
    sets = {name: items(pair) for name, pair in hospitals().items()}
    loaders = {name: DataLoader(one, batch_size=3, shuffle=True) for name, one in sets.items()}
    assert torch.equal(trained(from_loaders(loaders)), trained(from_datasets(sets)))


def test_tensor_data_sets_are_kept_in_memory_with_the_same_result():
    sets = {name: TensorDataset(*map(torch.from_numpy, pair)) for name, pair in hospitals().items()}
    federation = from_datasets(sets)
    assert isinstance(federation.source.train, Examples)
    assert torch.equal(trained(federation), trained(from_arrays(hospitals())))


def test_in_memory_reads_every_item_once_with_the_same_result():
    images = hospitals((8, 8, 3))
    sets = {name: items((x.transpose(0, 3, 1, 2).copy(), y)) for name, (x, y) in images.items()}
    federation = from_datasets(sets, in_memory=True)
    for one in sets.values():
        one.items.clear()
    assert torch.equal(trained(federation, SmallCnn()), trained(from_arrays(images), SmallCnn()))


def test_an_iterable_data_set_is_read_into_memory():
    sets = {name: Stream(items(pair).items) for name, pair in hospitals().items()}
    assert torch.equal(trained(from_datasets(sets)), trained(from_arrays(hospitals())))


def test_double_precision_becomes_single_and_whole_number_targets_long():
    federation = from_datasets([Items([(np.zeros(2), np.int32(1)), (np.ones(2), np.int32(0))])], test=0.5)
    x, y = federation.source.train.take(slice(0, 1))
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_what_a_data_set_draws_comes_from_our_seeds_whatever_was_drawn_before():
    federation = from_datasets({name: items(pair, Noisy) for name, pair in hospitals().items()})
    first = trained(federation)
    torch.rand(3), np.random.random(3), random.random()  # noqa: NPY002
    assert torch.equal(trained(federation), first)


def test_reading_leaves_the_global_generators_as_they_were():
    federation = from_datasets({name: items(pair, Noisy) for name, pair in hospitals().items()})
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    federation.source.train.take(slice(0, 3))
    assert torch.equal(torch.rand(3), expected)


def test_every_access_in_training_draws_anew_and_every_test_the_same():
    store = from_datasets({name: items(pair, Noisy) for name, pair in hospitals().items()}).source.train
    rng, rows = np.random.default_rng(0), torch.arange(4)
    first, second = store.take(rows, rng)[0], store.take(rows, rng)[0]
    assert not torch.equal(first, second)
    assert torch.equal(store.take(rows)[0], store.take(rows)[0])
    assert torch.equal(store.take(rows)[0][2:], store.take(rows[2:])[0])


# --- several inputs --------------------------------------------------------------------------------------------------


class TwoArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, scan, age):
        return self.left(scan) + self.right(age)


class OneArgument(TwoArguments):
    def forward(self, batch):
        scan, age = (batch["scan"], batch["age"]) if isinstance(batch, dict) else batch
        return self.left(scan) + self.right(age)


class Joined(TwoArguments):
    """The same network over one input of both."""

    def forward(self, both):
        return self.left(both[:, :4]) + self.right(both[:, 4:])


def several(kind: str):
    def of(x: torch.Tensor):
        return (x[:4], x[4:]) if kind == "tuple" else {"age": x[4:], "scan": x[:4]}

    pairs = hospitals((6,))
    return {name: Items([(of(x), y) for x, y in items(pair).items]) for name, pair in pairs.items()}


def same_weights(network: type[nn.Module]) -> Own:
    torch.manual_seed(0)
    return Own(network())


@pytest.mark.parametrize("kind", ["tuple", "dict"])
@pytest.mark.parametrize("network", [TwoArguments, OneArgument])
def test_several_inputs_train_as_one_input_that_holds_them_all(kind, network):
    expected = trained(from_arrays(hospitals((6,))), same_weights(Joined))
    federation = from_datasets(several(kind))
    assert torch.equal(trained(federation, same_weights(network)), expected)
    assert torch.equal(trained(federation, same_weights(network), Pool, workers=2), expected)
    assert torch.equal(trained(federation, same_weights(network), Stacked), expected)  # chain by chain


def test_several_inputs_in_memory_train_as_those_that_are_read():
    one, other = from_datasets(several("dict")), from_datasets(several("dict"), in_memory=True)
    assert torch.equal(trained(one, same_weights(TwoArguments)), trained(other, same_weights(TwoArguments)))
    assert other.source.train.shape == {"age": (2,), "scan": (4,)}
    assert "age (2,) of float32, scan (4,) of float32" in str(other)


def test_a_network_with_too_few_arguments_is_refused_in_our_words():
    sets = [Items([((torch.zeros(4), torch.zeros(2), torch.zeros(1)), 0)] * 4)]
    with pytest.raises(BadInput, match=r"TwoArguments.forward takes 2 inputs, but every example has 3"):
        Task.of(same_weights(TwoArguments), from_datasets(sets))


class Padded:
    """A collate that pads sequences to the longest of the batch."""

    def __call__(self, items):
        x = nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True)
        return x, torch.tensor([y for _, y in items])


class MeanOfSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(1, 2)

    def forward(self, x):
        return self.last(x.sum(1, keepdim=True))


def test_a_collate_of_ones_own_may_pad_every_batch_to_its_longest():
    sequences = [(torch.arange(1.0, length + 1) / 10, length % 2) for length in range(1, 9)]
    filled = [(torch.cat([x, torch.zeros(8 - len(x))]), y) for x, y in sequences]
    torch.manual_seed(0)
    model = Own(MeanOfSequence())
    found = trained(from_loaders([DataLoader(Items(sequences), collate_fn=Padded())]), model)
    assert torch.allclose(found, trained(from_datasets([Items(filled)]), model), atol=1e-6)


# --- test parts ------------------------------------------------------------------------------------------------------


def test_test_sets_by_client_keep_their_owners():
    sets = {name: items(pair) for name, pair in hospitals().items()}
    federation = from_datasets(sets, test={"east": items(arrays(2, 8)), "north": items(arrays(3, 9))})
    owned = fr.data.owned_tests(federation)
    assert federation.sizes == (13, 7, 22)
    assert [owned.client_test(number).size for number in range(3)] == [3, 0, 2]
    assert torch.equal(owned.client_test(2).take(torch.arange(2), None)[0], torch.from_numpy(arrays(2, 8)[0]))


def test_one_test_set_is_for_all():
    sets = {name: items(pair) for name, pair in hospitals().items()}
    federation = from_loaders({n: DataLoader(s) for n, s in sets.items()}, test=DataLoader(items(arrays(5, 8))))
    assert federation.sizes == (13, 7, 22)
    assert torch.equal(federation.test.take(slice(0, 5))[0], torch.from_numpy(arrays(5, 8)[0]))


def test_the_share_that_is_held_out_keeps_its_owners():
    federation = from_datasets({name: items(pair) for name, pair in hospitals().items()}, test=0.5)
    assert np.bincount(federation.source.test_owners).tolist() == [6, 4, 11]  # halves: round(6.5) = 6, round(3.5) = 4


# --- what is refused -------------------------------------------------------------------------------------------------


def good() -> Items:
    return items(arrays(5, 1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Items([]), r"south: expected at least one example, found an empty data set"),
        (Items([torch.zeros(4)] * 3), r"south: example 0 must be a pair \(input, target\), found a Tensor"),
        (Items([(torch.zeros(4), 0, 1)] * 3), r"south: example 0 must be a pair .* found 3 things"),
        (Items([{"x": 1}] * 3), r"south: example 0 must be a pair .* found a dict"),
        (items(arrays(5, 1, (6,))), r"south: expected inputs \(4,\) of float32 .* as in north, found inputs \(6,\)"),
        (Items([(torch.zeros(4, dtype=torch.int64), 0)] * 3), r"south: .*found inputs \(4,\) of int64"),
        (Items([(torch.zeros(4), 0.5)] * 3), r"south: expected .* targets \(\) of int64 .* targets \(\) of float32"),
        (Items([(torch.zeros(4), torch.tensor([0, 1]))] * 3), r"south: expected .* found .* targets \(2,\) of int64"),
        (
            Items([(torch.zeros(4), 0), (torch.zeros(5), 0)]),
            r"south: example 1 is \(5,\) of float32 .* but example 0 of south is \(4,\)",
        ),
        (Items([("text", 0)] * 3), r"south: input must be numbers, found texts such as 'text'"),
        (Items([(object(), 0)] * 3), r"south: examples such as a object .* cannot be put into a batch"),
        (Items([(torch.zeros(4), 0), (torch.full((4,), torch.nan), 0)]), r"south: .*NaN or infinite ones in example 1"),
        (Items([(torch.zeros(4), -1)] * 3), r"south: expected classes from 0 to 2, found others; 3 in all are outside"),
        (Endless(), r"south: expected an end after at most 100 examples"),
        (DataLoader(TensorDataset(torch.zeros(2, 4))), r"south: expected a Dataset, found a DataLoader; from_loaders"),
        (7, r"south: expected a torch.utils.data.Dataset, found a int"),
        (Dataset(), r"south: .*without __len__"),
    ],
)
def test_a_bad_data_set_is_refused_with_its_clients_name(bad, message):
    with pytest.raises(BadInput, match=message):
        from_datasets({"north": good(), "south": bad}, most=100)


class Broken(Items):
    def __getitem__(self, index: int):
        if index == 3:
            raise OSError("scan3.png is gone")
        return super().__getitem__(index)


def test_an_item_that_cannot_be_read_is_named():
    with pytest.raises(BadInput, match=r"south: example 3 cannot be read: OSError: scan3.png is gone"):
        from_datasets({"north": good(), "south": items(arrays(5, 1), Broken)})


class Forever:
    def __init__(self, rows) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(self.rows())


@pytest.mark.parametrize(
    "sampler", [Forever(lambda: cycle([0, 1])), Forever(count), WeightedRandomSampler([1.0] * 5, 50)]
)
def test_a_sampler_that_never_ends_or_draws_again_is_refused(sampler):
    loader = DataLoader(good(), sampler=sampler)
    with pytest.raises(
        BadInput,
        match=r"south: expected a sampler that gives every example once, found (Forever|WeightedRandomSampler)",
    ):
        from_loaders({"north": DataLoader(good()), "south": loader})


def test_a_sampler_of_some_examples_is_obeyed():
    loader = DataLoader(good(), sampler=SubsetRandomSampler([4, 1, 2]))
    federation = from_loaders([loader], test=DataLoader(good()))
    assert torch.equal(federation.source.train.take(slice(0, 3))[0], torch.from_numpy(arrays(5, 1)[0][[1, 2, 4]]))


def test_a_batch_sampler_of_some_examples_is_obeyed():
    federation = from_loaders([DataLoader(good(), batch_sampler=[[3, 0], [2]])], test=DataLoader(good()))
    assert federation.sizes == (3,)


def test_loaders_that_collate_differently_or_not_at_all_are_refused():
    with pytest.raises(BadInput, match=r"south: expected the collate_fn that all others have"):
        from_loaders({"north": DataLoader(good()), "south": DataLoader(good(), collate_fn=Padded())})
    with pytest.raises(BadInput, match=r"south: expected a DataLoader that makes batches, found one with batch_size"):
        from_loaders({"north": DataLoader(good()), "south": DataLoader(good(), batch_size=None)})
    with pytest.raises(BadInput, match=r"client 0: expected a torch.utils.data.DataLoader, found a Items"):
        from_loaders([good()])


def test_no_clients_and_unknown_test_parts_are_refused():
    with pytest.raises(BadInput, match=r"own: expected at least one client"):
        from_datasets({})
    with pytest.raises(BadInput, match=r"own: expected test parts of its clients \(north\), found one of west"):
        from_datasets({"north": good()}, test={"west": good()})
