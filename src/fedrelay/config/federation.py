"""From the [data] table of a configuration to a federation: a data set, how it is prepared, how it is split."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrelay import seeds
from fedrelay.config import schema
from fedrelay.data import (
    PARTITIONS,
    SOURCES,
    Augment,
    Federation,
    Iid,
    Natural,
    Normalise,
    Partition,
    Source,
    hold_out,
    matched_tests,
    owned_tests,
    thinned,
    with_validation,
)
from fedrelay.data.examples import Store
from fedrelay.data.locate import data_folder
from fedrelay.data.own import from_folder, from_table
from fedrelay.data.sources import FILES
from fedrelay.errors import BadInput, within

LOG = logging.getLogger("fedrelay")
Tables = dict[str, Any]

CHOICES: dict[Any, schema.Table] = {Partition: PARTITIONS}
OWN: dict[str, Callable[..., Any]] = {"table": from_table, "folder": from_folder}
"""Data of one's own, whose clients are its natural owners."""

DATA: dict[str, Callable[..., Any]] = {**SOURCES, **{name: entry.reader for name, entry in FILES.items()}, **OWN}
"""Every name that [data] knows."""

OPTIONS = ("share", "test_share", "partition", "augment", "exemplars", "client_tests", "validation", "split")


def federate(values: Mapping[str, Any], seed: int, data_dir: Path | str | None = None) -> tuple[Federation, Tables]:
    """The federation, and the table with all defaults filled in and the fingerprint of the split.

    Besides the data set's own options the table takes `clients`, `share` and `test_share` (only so much of each class),
    `partition`, `augment` (crop and flip at every access), `exemplars` (so many test examples per class become public),
    `client_tests` (every client has a test part: a share of its size with its class mix, or "owned"), `validation` (a
    share of every client's training data becomes the validation set) and `split` (the fingerprint expected).
    """
    values = dict(values)
    name = values.pop("name", None)
    target = schema.choose(DATA, name, "[data]")
    given = {"folder": data_folder(data_dir)} if name in FILES else {}
    schema.check_keys({"name": name, **values}, keys_of(name), "[data]")
    options = {key: values.pop(key) for key in OPTIONS if key in values}
    clients = schema.convert(values.get("clients", schema.NONE), int | None, "[data].clients")
    if "clients" not in schema.parameters(target):
        values.pop("clients", None)
    found, resolved = schema.build(target, values, "[data]", CHOICES, given)
    source: Source = found.source if isinstance(found, Federation) else found
    source, prepared = prepare(source, options, seed)
    partition, federation = split(source, options.get("partition"), clients, seed)
    if "client_tests" in options:
        federation = with_client_tests(federation, options["client_tests"], seed)
        prepared["client_tests"] = options["client_tests"]
    expected = schema.convert(options.get("split", federation.fingerprint), str, "[data].split")
    if expected != federation.fingerprint:
        raise BadInput(
            f"[data].split is {expected[:12]}…, but this data set and partition give "
            f"{federation.fingerprint[:12]}…: clients would not have the examples they had in that run"
        )
    fingerprint = federation.fingerprint  # of who has what, whether it is trained on or held out
    federation, prepared["validation"] = with_validation_set(federation, options.get("validation", 0.0), seed)
    resolved |= prepared | {"clients": len(federation), "partition": schema.plain(partition, CHOICES)}
    return federation, {"name": name} | resolved | {"split": fingerprint}


def keys_of(name: object) -> list[str]:
    """What [data] may say of this data set."""
    target = schema.choose(DATA, name, "[data]")
    given = ("folder",) if name in FILES else ()
    return ["name", *schema.parameters(target, skip=given), "clients", *OPTIONS]


def say_fewer(source: Source, public: Store, exemplars: int) -> None:
    """Classes that are too rare for so many exemplars give half of their test examples, and the user is told."""
    counts = np.bincount(public.labels, minlength=source.classes)
    fewer = np.flatnonzero((counts < exemplars) & (np.bincount(source.test.labels, minlength=source.classes) > 0))
    if len(fewer):
        LOG.warning(
            "[data].exemplars: %d of %d classes of %s have too few test examples for %d exemplars, so half of what "
            "they have is taken (class %d: %d)",
            *(len(fewer), source.classes, source.name, exemplars, fewer[0], counts[fewer[0]]),
        )


def prepare(source: Source, options: Mapping[str, Any], seed: int) -> tuple[Source, Tables]:
    """Leave examples out; augment what is trained on; hold public exemplars out of the test set."""
    shares = {key: schema.convert(options.get(key, 1.0), float, f"[data].{key}") for key in ("share", "test_share")}
    thin = {key: share for key, share in shares.items() if share != 1}
    if thin:
        try:  # the same examples for every seed
            source = thinned(source, shares["share"], seeds.rng(0, "share"), tested=shares["test_share"])
        except BadInput as error:
            raise BadInput(f"[data].{next(iter(thin))}: {error}") from error
    augment = schema.convert(options.get("augment", False), bool, "[data].augment")
    exemplars = schema.convert(options.get("exemplars", 0), int, "[data].exemplars")
    if augment:
        source = replace(source, train=source.train.with_transform(augmented(source)))
    if exemplars:
        try:
            rest, public = hold_out(source, exemplars, seeds.rng(seed, "exemplars"), allow_fewer=True)
        except BadInput as error:
            raise BadInput(f"[data].exemplars: {error}") from error
        say_fewer(source, public, exemplars)
        source = replace(rest, public=public)
    return source, {"augment": augment, "exemplars": exemplars} | thin


def with_client_tests(federation: Federation, wanted: Any, seed: int) -> Federation:
    """Every client gets a test part: its owner's, or of its own class mix."""
    share = None if wanted == "owned" else schema.convert(wanted, float, "[data].client_tests")
    try:
        return owned_tests(federation) if share is None else matched_tests(federation, share, seed=seed)
    except BadInput as error:
        raise BadInput(f"[data].client_tests: {error}") from error


def with_validation_set(federation: Federation, wanted: Any, seed: int) -> tuple[Federation, float]:
    """The federation without its validation set, which it has beside it, and the share that this is; 0 is none."""
    share = schema.convert(wanted, float, "[data].validation")
    if not share:
        return federation, share
    try:
        return with_validation(federation, share, seed=seed), share
    except BadInput as error:
        raise BadInput(f"[data].validation: {error}") from error


def augmented(source: Source) -> Augment:
    """Random crop and flip, with the normalisation the images already have."""
    scale = source.train.transform
    if not isinstance(scale, Normalise):
        raise BadInput(f"[data].augment works on images stored as bytes; {source.name} has other inputs")
    return Augment(scale.mean, scale.std)


def split(source: Source, wanted: Any, clients: int | None, seed: int) -> tuple[Partition, Federation]:
    """Cut the source: unless asked otherwise by its natural owners, or else evenly among 100 clients."""
    if clients is not None:
        within("[data].clients", clients, least=1)
    if wanted is not None:
        partition, _ = schema.build_named(PARTITIONS, wanted, "[data].partition", CHOICES)
    elif source.owners is not None:
        partition = Natural()
    else:
        partition, clients = Iid(), clients or 100
    try:
        return partition, Federation.split(source, partition, clients, seed)
    except BadInput as error:
        raise BadInput(f"[data]: {error}") from error
