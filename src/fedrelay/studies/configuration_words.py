"""Words of docs/configuration.md that no docstring has."""

from __future__ import annotations

ABOUT = """# Configuration

Every key of a configuration, read off the code (`python -m fedrelay.studies.configuration_page docs/configuration.md`).
A key that is not here is refused, with the nearest that is. The resolved configuration of a run, with every default
filled in, is `config.toml` in its folder, and repeats the run.

Where a type is a link, the value is a name, `merge = "median"`, or a table with a name and the part's own keys,
`merge = { name = "trimmed_mean", trim = 0.1 }`. `"none"` takes away what is there by default. On the command line
`--set algorithm.fraction=0.5` says the same as the file."""

NUMBERS = {
    "rounds": ("whole number", "how many rounds there are (1 for methods of one shot); may be raised with `--resume`"),
    "seed": ("whole number", "of everything random: the split, the first model, draws, batches"),
    "checkpoint": (
        "whole number",
        "a run can go on from every round whose number this divides, from the last, and from one that took long",
    ),
}

DATA = {
    "name": ("text", "the data set, by one of the names below"),
    "clients": ("whole number", "how many there are, if the partition does not say; 100 of a data set without owners"),
    "partition": ("[partitions](#partitions)", "how examples become clients: by their natural owners, or else `iid`"),
    "share": (
        "number",
        "only this share of the training examples of every class (and owner), the same ones for every seed: for quick "
        "tries",
    ),
    "test_share": ("number", "the same of the test examples"),
    "augment": ("true or false", "crop and flip images at random at every access"),
    "exemplars": (
        "whole number",
        "so many test examples of every class become public, for traits",
    ),
    "client_tests": (
        'number or `"owned"`',
        "every client has a test part: this share of its size with its class mix, or the test examples of its owner",
    ),
    "validation": (
        "number",
        "this share of every client's training rows is held out as the **validation set** of the federation: nobody "
        'trains on it, `[evaluate] on = "validation"` tests on it, and `fedrelay tune` chooses by it (0.1 there, if it '
        "is not said). "
        "It is not the local validation part of `[local] validation`, by which a client chooses an epoch",
    ),
    "split": ("text", "the fingerprint of who has which examples; another split is refused. A run writes it down"),
}

LOCAL = {
    "optimiser": ("text", "one of the names below"),
    "pull": ("[pulls](#pulls)", "short for the term of this name"),
    "objective": ("[objectives](#objectives)", "short for the term of this name"),
    "sam": ("number", "short for the term `sharpness` with this radius"),
}

COMPARE = (
    [
        "A configuration for all runs, with a table for every run that says what differs in it. A run that names\n"
        "another method (or data set, model, engine) keeps what the section says and the new one knows too, such as\n"
        "`fraction`; what it does not know is left out, and the command, `results.md` and the page say so. They also\n"
        "say when runs differ in visits or examples a round."
    ],
    {
        "runs": ("tables", "`[runs.NAME]`: what differs in this run, section by section"),
        "seeds": ("list of whole numbers", "every run is done with each of them, and the table has mean and deviation"),
        "reference": ("text", "the run whose mean accuracy (or other headline) is the target of the others"),
        "baseline": (
            "text",
            "the run that speed-ups are measured against; unless it is said, the one called `fedavg`, or the only one "
            "with that method",
        ),
        "parallelism_baseline": (
            "text",
            "the run that numbers of groups are measured against; unless it is said, `fedseq` in the same way",
        ),
    },
)

GRID = (
    [
        "`fedrelay compare` takes such a file too: every attack meets every defence, method by method, and nobody\n"
        "attacks in one row. `report.html` has a heat map for every method, and what every defence gives and costs. A\n"
        "cell whose defence does not hold there (Krum needs n ≥ 2f + 3 chains) says why; all others are done. `seeds`\n"
        "is as above."
    ],
    {
        "methods": (
            "tables",
            "`[methods.NAME]`: what differs with this method, section by section; `[methods.NAME.defences.NAME]` is a "
            "defence of this method alone, or in another way than the others have it",
        ),
        "attacks": ("tables", "`[attacks.NAME]`: the section [attack] of a row"),
        "defences": ("tables", "`[defences.NAME]`: what differs with this defence, section by section"),
    },
)

ATTACK = """Who lies in the run, and how; without the section everybody is honest. The attackers are drawn from the
seed by labels of their own: everything else is drawn as in the honest run, and with `strength = 0` the models are the
same to the bit. `attackers.json` and every line of `rounds.jsonl` (`attacked`) say who they were."""

PACKAGES = """Written by a run that took parts from other packages ([Extend](extend.md#parts-in-a-package-of-your-own)):
the name of each and its version. A configuration that has it is refused where another version is installed, or none."""

WORDS = {
    "alpha": "how alike the class mixes are: 0 is one class each, large is all alike",
    "batch": "examples in a step; 0 or more than a client has: all of them",
    "beta1": "how much of the mean of earlier changes is kept",
    "beta2": "how much of the mean of earlier squares is kept",
    "categories": "columns that are categories, where this is not to be found out",
    "classes": "how many there are",
    "clients": "how many there are",
    "clip": "gradients that are longer than this are shortened to it",
    "dates": "columns that are dates, where this is not to be found out",
    "dimension": "numbers in an example",
    "distances": "how unlike two clients are",
    "dropout": "the share of units that a step leaves out",
    "embedding": "numbers for every character or word",
    "epochs": "passes over a client's examples at a visit",
    "eps": "is added to the root that steps are divided by",
    "epsilon": "is added to distances, so that none is zero",
    "every": "the model is tested after every round whose number this divides, and after the last",
    "every_step": "whether every position is predicted, and not only the last",
    "examples": "how many there are",
    "groupers": "how groups are made of that",
    "groups": "how many there are",
    "guard": "a model that comes back so many times longer than it went is left out",
    "heads": "attention heads",
    "hidden": "units of the hidden layers",
    "iterations": "how often groups are improved",
    "keep": "which model a client sends: that after its last epoch, or that which is best on its own validation part",
    "laps": "how often a chain goes through its clients in a round",
    "layers": "how many, or which of them",
    "length": "words in an example",
    "lr": "the learning rate",
    "max_clients": "no group has more clients",
    "memory_limit": "megabytes of client memories beyond which they are kept in a file",
    "min_examples": "groups grow until they have so many examples",
    "momentum": "how much of the last step is kept",
    "mu": "how strong the spring to the received model is",
    "native": "convolutions and dense layers are trained by compiled code: quicker, and rounded otherwise",
    "norm": "what the layers normalise by",
    "path": "where the data lies",
    "period": "rounds between two merges; as many as there are groups unless it is said",
    "probe": "the network that looks at the examples",
    "relu": "whether there is a rectifier between the layers",
    "schedule": "how the learning rate changes from round to round",
    "shape": "of one example",
    "shares": "of the target, for which the summary says what it took to reach them",
    "similarity": "how alike two clients' changes of the model are",
    "size": "images are made so many pixels wide and high",
    "sizes": "how many examples clients have",
    "standardise": "whether every number is divided by its deviation over the clients",
    "steps": "steps at a visit, instead of epochs",
    "tau": "is added to the root that changes are divided by",
    "temperature": "by which outputs are divided before they are compared",
    "terms": "what is added to the training at a client",
    "test": "the share (or number) of examples that become the test set",
    "test_examples": "how many there are in the test set",
    "traits": "what clients tell of their data",
    "validation": "the share of its examples that a client keeps for itself to choose an epoch by (see keep): its "
    "local validation part, not the validation set of `[data] validation`",
    "weight_decay": "how much of the weights every step takes away, times the learning rate",
    "weights": "a file of weights",
    "width": "numbers for every position",
    "words": "how many different ones there are, the most frequent",
}
"""What a key means wherever the docstring of what it configures does not say."""
