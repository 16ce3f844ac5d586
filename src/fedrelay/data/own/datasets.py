"""A federation of `torch.utils.data.Dataset`s or DataLoaders, one per client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from fedrelay.data.access import seeded_access
from fedrelay.data.examples import Examples, Store
from fedrelay.data.federation import Federation
from fedrelay.data.nests import joined
from fedrelay.data.own.assemble import Parts, assembled
from fedrelay.data.own.looking import Look, Opened, in_memory_already, look_at, opened, padded
from fedrelay.data.sources.checks import wrong
from fedrelay.data.stores.datasets import Collate, DatasetExamples
from fedrelay.errors import BadInput

MOST = 100_000


def from_datasets(
    clients: Mapping[str, Any] | Sequence[Any],
    *,
    test: Any = 0.2,
    classes: int | None = None,
    name: str = "own",
    class_names: Sequence[str] = (),
    collate: Collate | None = None,
    in_memory: bool = False,
    most: int = MOST,
) -> Federation:
    """A federation of one `torch.utils.data.Dataset` per client, in a dict by name or in a list.

    Args:
        clients: data sets whose items are pairs (input, target). Several inputs are a tuple or a dict in the first
            place; a network gets a tuple as arguments and a dict as named arguments, if its `forward` has them.
        test: the share that is held out of every client; or a data set; or a dict of data sets by client.
        classes: how many; by default one more than the largest target, or the width of targets that are no classes.
        name: what the data is called.
        class_names: what the classes are called.
        collate: from a list of items to a batch, as a DataLoader has it.
        in_memory: read everything once and keep it. Only for data sets that give the same at every access.
        most: an `IterableDataset` is read into memory, and refused if it has not ended after so many examples.

    Every data set is read through once, to check it and to get to know its targets. After that, items are read when
    they are trained or tested on, each time anew. What a data set draws (augmentation) comes from the run's seed,
    whether it draws from torch's, NumPy's or Python's global generator.
    """
    mine = [opened(label, one, most) for label, one in by_name(clients).items()]
    if not mine:
        raise BadInput(f"{name}: expected at least one client, found none")
    names = [one.name for one in mine]
    share = float(test) if isinstance(test, int | float) else None
    tested, owners = ([], []) if share is not None else opened_tests(name, test, names, most)
    sets = [*mine, *tested]
    keep = in_memory or (collate is None and all(in_memory_already(one.dataset) for one in sets))
    store = stored(sets, look_at(sets, collate, keep=keep), collate)
    parts = Parts(store, names, [one.size for one in mine], [one.size for one in tested], owners)
    return assembled(name, parts, share=share, classes=classes, class_names=class_names)


def from_loaders(
    clients: Mapping[str, Any] | Sequence[Any],
    *,
    test: Any = 0.2,
    classes: int | None = None,
    name: str = "own",
    class_names: Sequence[str] = (),
    in_memory: bool = False,
    most: int = MOST,
) -> Federation:
    """A federation of one DataLoader per client: its data set, its `collate_fn`, and the examples its sampler chooses.

    The size of batches and their order are those of the run, not the loader's. A sampler that draws examples again, or
    never ends, is refused. `test` is a share, a loader, or a dict of loaders by client; all else is as in
    `from_datasets`.
    """
    mine = {label: unwrapped(label, one) for label, one in by_name(clients).items()}
    several = test if isinstance(test, Mapping) else {} if isinstance(test, int | float) else {"test part": test}
    tested = {label: unwrapped(f"test part {label}", one) for label, one in several.items()}
    collates = [one.collate for one in (*mine.values(), *tested.values())]
    for label, collate in zip((*mine, *tested), collates, strict=True):
        if collate != collates[0]:
            raise wrong(str(label), "the collate_fn that all others have", f"{collate}")
    sets = {label: one.dataset for label, one in tested.items()}
    return from_datasets(
        {label: one.dataset for label, one in mine.items()},
        test=sets if isinstance(test, Mapping) else sets.get("test part", test),
        classes=classes,
        name=name,
        class_names=class_names,
        collate=collates[0] if collates else None,
        in_memory=in_memory,
        most=most,
    )


def by_name(clients: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Clients without names are numbered."""
    pairs: Iterable[tuple[Any, Any]] = clients.items() if isinstance(clients, Mapping) else enumerate(clients)
    return {str(label) if isinstance(clients, Mapping) else f"client {label}": one for label, one in pairs}


def opened_tests(name: str, test: Any, names: Sequence[str], most: int) -> tuple[list[Opened], list[int]]:
    """The test parts, and whose they are, where that is known."""
    if not isinstance(test, Mapping):
        return [opened("test part", test, most)], []
    unknown = [str(label) for label in test if str(label) not in names]
    if unknown or not test:
        found = f"one of {unknown[0]}" if unknown else "none"
        raise wrong(name, f"test parts of its clients ({', '.join(names[:10])})", found)
    sets = [opened(f"test part of {label}", one, most) for label, one in test.items()]
    return sets, [names.index(str(label)) for label in test]


def stored(sets: Sequence[Opened], looks: Sequence[Look], collate: Collate | None) -> Store:
    """All examples: in memory, if they were kept, or else to be read."""
    y = joined([look.y for look in looks], padded)
    if looks[0].x is not None:
        return Examples(joined([look.x for look in looks]), y)
    numbers = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([one.size for one in sets]))
    items = torch.cat([torch.arange(one.size) for one in sets])
    datasets, names = tuple(one.dataset for one in sets), tuple(one.name for one in sets)
    return DatasetExamples(datasets, names, torch.stack([numbers, items], 1), y, looks[0].sample, collate)


class Unwrapped(NamedTuple):
    dataset: Any
    collate: Collate | None


def unwrapped(name: str, loader: Any) -> Unwrapped:
    """What is used of a loader."""
    if not isinstance(loader, DataLoader):
        raise wrong(name, "a torch.utils.data.DataLoader", f"a {type(loader).__name__}; from_datasets takes Datasets")
    if loader.batch_sampler is None and loader.batch_size is None:
        raise wrong(
            name, "a DataLoader that makes batches", "one with batch_size=None; from_datasets takes its data set"
        )
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset) or everything(loader):
        return Unwrapped(dataset, collate)
    plain = type(loader.batch_sampler) is BatchSampler
    sampler: Any = loader.sampler if plain else loader.batch_sampler
    with seeded_access() as seed:  # a sampler that draws chooses the same ones every time
        seed(0)
        chosen = iter(sampler) if plain else chain.from_iterable(sampler)
        rows = [int(row) for row in islice(chosen, len(dataset) + 1)]
    if len(set(rows)) < len(rows) or len(rows) > len(dataset):
        raise wrong(
            name,
            "a sampler that gives every example once",
            f"{type(sampler).__name__}, which draws examples again or never ends; from_datasets takes the data set, "
            "and class weights do what a weighted sampler does",
        )
    return Unwrapped(Subset(dataset, sorted(rows)), collate)


def everything(loader: DataLoader[Any]) -> bool:
    """Whether a loader goes through its whole data set."""
    sampler, dataset = loader.sampler, cast("Any", loader.dataset)
    if type(loader.batch_sampler) is not BatchSampler:
        return False
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == len(dataset)
    return isinstance(sampler, SequentialSampler)
