"""Parts that are set aside: of the test set, public exemplars and a test part for every client; of the clients'
training data, a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import seeds
from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData, Federation, Rows, Source
from fedrelay.data.heterogeneity import Floats, label_mixes
from fedrelay.data.partitions.apportion import Counts, cut
from fedrelay.errors import BadInput, within


def hold_out(
    source: Source, per_class: int, rng: np.random.Generator, *, allow_fewer: bool = False
) -> tuple[Source, Store]:
    """The source without `per_class` test examples of every class, and these: public exemplars (FedSeq 2022, Sec. IV).

    `allow_fewer` takes half of a class that has too few (rare characters), instead of refusing, unless all have.
    """
    within("the number of exemplars per class", per_class, least=1)
    labels = source.test.labels
    stock = np.bincount(labels, minlength=source.classes)
    short = np.flatnonzero(stock <= per_class)
    if len(short) and not (allow_fewer and stock.max() > per_class):
        most = int(stock.min()) - 1
        works = f"the largest number that works is {most}" if most > 0 else "allow fewer for such classes"
        raise BadInput(
            f"class {short[0]} of {source.name} has {stock[short[0]]} test examples, so {per_class} of them cannot be "
            f"held out with one left to test on ({len(short)} classes are too small): {works}"
        )
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.flatnonzero(stock):
        rows = rng.permutation(np.flatnonzero(labels == label))
        chosen[rows[: per_class if len(rows) > per_class else len(rows) // 2]] = True
    owners = None if source.test_owners is None else source.test_owners[~chosen]
    rest = replace(source, test=picked(source.test, np.flatnonzero(~chosen)), test_owners=owners)
    return rest, picked(source.test, np.flatnonzero(chosen))


def thinned(source: Source, share: float, rng: np.random.Generator, *, tested: float = 1.0) -> Source:
    """A small copy of the source: this share of the examples of every class of every owner to train on, and the share
    `tested` to test on; of each at least one. Where examples have no classes, of every owner."""
    within("the share of the examples", share, above=0, most=1)
    within("the share of the test examples", tested, above=0, most=1)
    train = _some(source.train, source.owners, share, rng)
    test = _some(source.test, source.test_owners, tested, rng)
    return replace(
        source,
        train=picked(source.train, train),
        test=picked(source.test, test),
        owners=None if source.owners is None else source.owners[train],
        test_owners=None if source.test_owners is None else source.test_owners[test],
    )


def _some(examples: Store, owners: Rows | None, share: float, rng: np.random.Generator) -> Rows:
    """Rows of this share of every kind of example, in the order they are in."""
    kinds = np.zeros(len(examples), dtype=np.int64) if owners is None else owners.astype(np.int64)
    if examples.classified and len(examples):
        kinds = kinds * (int(examples.labels.max()) + 1) + examples.labels
    order = rng.permutation(len(examples))
    order = order[np.argsort(kinds[order], kind="stable")]
    _, starts, counts = np.unique(kinds[order], return_index=True, return_counts=True)
    kept = np.maximum(np.floor(share * counts + 0.5), 1).astype(np.int64)
    taken = [order[start : start + count] for start, count in zip(starts, kept, strict=True)]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *taken]))


def picked(examples: Store, rows: Rows) -> Store:
    """Only these rows, in this order, as examples of their own."""
    return examples.picked(torch.from_numpy(rows))


def matched_tests(federation: Federation, share: float = 0.2, *, seed: int = 0, repeat: bool = False) -> Federation:
    """Every client gets a test part with its own class mix, `share` times its size (clustered sampling 2021, Sec. 6).

    Nobody shares a test example, unless `repeat` draws them with replacement as the published code does. Where only
    rounding asks for more of a class than there is, some parts have an example of it less.
    """
    within("the share of the clients' test parts", share, above=0)
    rng = seeds.rng(seed, "client tests")
    test, train_counts = federation.source.test.labels, federation.label_counts()
    sizes = np.floor(train_counts.sum(axis=1) * share + 0.5).astype(np.int64)
    mixes = label_mixes(train_counts)
    counts = np.stack([cut(int(size), mix, rng) for size, mix in zip(sizes, mixes, strict=True)])
    stock = np.bincount(test, minlength=counts.shape[1])
    if not repeat:
        _round_down(counts, sizes[:, None] * mixes, stock)
    wanted = counts.sum(axis=0)
    _refuse_shortage(stock, wanted, share, repeat=repeat)
    parts: list[list[Rows]] = [[] for _ in range(len(federation))]
    for label in np.flatnonzero(wanted):
        rows = np.flatnonzero(test == label)
        deck = rng.choice(rows, wanted[label]) if repeat else rng.permutation(rows)
        ends = np.cumsum(counts[:, label])
        for client in np.flatnonzero(counts[:, label]):
            parts[client].append(deck[ends[client] - counts[client, label] : ends[client]])
    empty = np.empty(0, dtype=np.int64)
    return with_tests(federation, [np.sort(np.concatenate([empty, *part])) for part in parts])


def owned_tests(federation: Federation) -> Federation:
    """Every natural client gets the test examples of its owner; there may be none."""
    source = federation.source
    if source.owners is None or source.test_owners is None:
        raise BadInput(f"{source.name} does not say who made its test examples: match the clients' class mix instead")
    first, mixed = _first_owners(federation, source.owners)
    if len(mixed):
        client = int(np.searchsorted(federation.starts.numpy(), mixed[0], side="right")) - 1
        raise BadInput(f"client {client} has examples of more than one owner: only natural clients have tests by owner")
    order = np.argsort(source.test_owners, kind="stable")
    ordered = source.test_owners[order]
    left, right = np.searchsorted(ordered, first, side="left"), np.searchsorted(ordered, first, side="right")
    return with_tests(federation, [order[a:b] for a, b in zip(left, right, strict=True)])


def own_tests(federation: Federation) -> Federation | None:
    """The federation with the test parts that its clients have: those it was given, or else those of their owners.

    None if it is not known who made the test examples, or clients are not their natural owners.
    """
    source = federation.source
    if federation.test_order is not None:
        return federation
    if source.owners is None or source.test_owners is None or len(_first_owners(federation, source.owners)[1]):
        return None
    return owned_tests(federation)


def _first_owners(federation: Federation, owners: Rows) -> tuple[Rows, Rows]:
    """The owner of every client's first example, and the places of examples that somebody else made."""
    owned = owners[federation.order.numpy()]
    first = owned[federation.starts.numpy()[:-1]]
    return first, np.flatnonzero(owned != np.repeat(first, federation.sizes))


def with_tests(federation: Federation, rows: Sequence[Rows]) -> Federation:
    """The same clients with these rows of the test set as their own test parts."""
    if len(rows) != len(federation):
        raise BadInput(f"{len(federation)} clients need one test part each, found {len(rows)}")
    order = np.concatenate(rows).astype(np.int64)
    if len(order) and not 0 <= order.min() <= order.max() < len(federation.test):
        raise BadInput(f"test rows must be 0 to {len(federation.test) - 1}, found {order.min()} to {order.max()}")
    starts = np.concatenate([[0], np.cumsum([len(part) for part in rows])]).astype(np.int64)
    return replace(federation, test_order=torch.from_numpy(order), test_starts=torch.from_numpy(starts))


def with_validation(federation: Federation, share: float, *, seed: int = 0) -> Federation:
    """The same clients without a share of their training rows, which are the federation's validation set: nobody trains
    on them, and settings are chosen by them.

    At least one example of every client is held out and one is left, where there are two. It has nothing to do with the
    validation part that a client keeps for itself at a visit (`[local] validation`), which is taken from the rest.
    """
    within("the share of the validation set", share, above=0)
    if share >= 1:
        raise BadInput(f"the share of the validation set must be below 1, not {share:g}: 0.1 leaves most to train on")
    rng = seeds.rng(seed, "validation set")
    held = np.zeros(len(federation.order), dtype=bool)
    for start, size in zip(federation.starts.tolist(), federation.sizes, strict=False):
        held[start : start + size] = _chosen(size, share, rng)
    if not held.any():
        raise BadInput("no client has two examples, so none can be held out: there is no validation set")
    left, starts = torch.from_numpy(~held), federation.starts.numpy()
    kept = np.concatenate([[0], np.cumsum(~held)])[starts]
    validation = federation.order[~left].long()
    return replace(
        federation,
        order=federation.order[left],
        starts=torch.from_numpy(kept.astype(starts.dtype)),
        validation_rows=validation,
    )


def own_test_part(client: ClientData, share: float, *, seed: int) -> ClientData:
    """The client without a share of its rows, which it has beside them to test on: the same ones whenever it comes."""
    chosen = torch.from_numpy(_chosen(client.size, share, seeds.rng(seed, "own test part", client.id)))
    return replace(client, rows=client.rows[~chosen], held_out=client.rows[chosen])


def held_count(size: int, share: float) -> int:
    """How many of so many examples are held out: at least one, and one is left, where there are two."""
    return min(max(round(share * size), 1), size - 1)


def _chosen(size: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of so many rows are held out."""
    chosen = np.zeros(size, dtype=bool)
    chosen[rng.permutation(size)[: held_count(size, share)]] = True
    return chosen


def _round_down(counts: Counts, exact: Floats, stock: Rows) -> None:
    """Where there are too few of a class, take one from the clients that rounding has given most, as far as it has."""
    for label in np.flatnonzero(counts.sum(axis=0) > stock):
        given = counts[:, label] - exact[:, label]
        most = np.argsort(-given, kind="stable")[: counts[:, label].sum() - stock[label]]
        counts[most[given[most] > 0], label] -= 1


def _refuse_shortage(stock: Rows, wanted: Rows, share: float, *, repeat: bool) -> None:
    short = np.flatnonzero((wanted > 0) & (stock == 0) if repeat else wanted > stock)
    if not len(short):
        return
    label = short[0]
    works = "" if repeat else f": a share of about {share * (stock[short] / wanted[short]).min():.3g} works"
    raise BadInput(
        f"the clients' test parts need {wanted[label]} test examples of class {label} "
        f"and there are {stock[label]}{works}"
    )
