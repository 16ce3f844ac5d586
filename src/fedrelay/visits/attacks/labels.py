"""Label flipping: an attacker swaps classes in pairs, both ways (FedSeq journal 2024, Section V-A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.examples import Store
from fedrelay.data.federation import ClientData
from fedrelay.errors import BadInput
from fedrelay.tasks import Task
from fedrelay.visits.attacks.attack import Attack
from fedrelay.visits.attacks.poisoned import Poisoned, own_examples, with_own

Sets = tuple[tuple[int, ...], ...]
"""Classes; those of one set are swapped among themselves."""

SUPERCLASSES: Sets = (
    (4, 30, 55, 72, 95),  # aquatic mammals
    (1, 32, 67, 73, 91),  # fish
    (54, 62, 70, 82, 92),  # flowers
    (9, 10, 16, 28, 61),  # food containers
    (0, 51, 53, 57, 83),  # fruit and vegetables
    (22, 39, 40, 86, 87),  # household electrical devices
    (5, 20, 25, 84, 94),  # household furniture
    (6, 7, 14, 18, 24),  # insects
    (3, 42, 43, 88, 97),  # large carnivores
    (12, 17, 37, 68, 76),  # large man-made outdoor things
    (23, 33, 49, 60, 71),  # large natural outdoor scenes
    (15, 19, 21, 31, 38),  # large omnivores and herbivores
    (34, 63, 64, 66, 75),  # medium-sized mammals
    (26, 45, 77, 79, 99),  # non-insect invertebrates
    (2, 11, 35, 46, 98),  # people
    (27, 29, 44, 78, 93),  # reptiles
    (36, 50, 65, 74, 80),  # small mammals
    (47, 52, 56, 59, 96),  # trees
    (8, 13, 48, 58, 90),  # vehicles 1
    (41, 69, 81, 85, 89),  # vehicles 2
)
"""The classes of CIFAR-100 in the superclasses of its authors."""

NAMED: dict[str, Sets] = {
    "plane_bird": ((0, 2),),
    "cat_dog": ((3, 5),),
    "plane_bird_cat_dog": ((0, 2, 3, 5),),
    "intra": ((1, 73, 32, 67), (54, 62, 70, 82), (6, 7, 14, 18), (8, 13, 90, 48), (2, 11, 35, 98)),
    "extra": (tuple(classes[0] for classes in SUPERCLASSES),),
    # Paper: one class of every superclass. The list of the published code has only 14 superclasses, three of them
    # three times; here is that list, and `extra` does what the paper says.
    "extra_published": (tuple(range(0, 100, 5)),),
}
"""Of CIFAR-10: 0 and 2, 3 and 5, and all four; of CIFAR-100, 20 classes: pairs inside superclasses (`intra`) or across
them (`extra`)."""
MIRRORED = "mirrored"
ATTACKED_ACCURACY = "attacked_accuracy"
"""On the test examples of the classes that attackers swap."""


@dataclass(frozen=True)
class Labels(Attack):
    """Swaps classes in pairs, both ways: an attacker learns each as the other (FedSeq journal 2024, Section V-A).

    Args:
        classes: sets of classes that are swapped among themselves, such as [[0, 2], [3, 5]], or a name: "mirrored"
            swaps the first with the last, the second with the one before, and so on; of CIFAR-10 "plane_bird",
            "cat_dog", "plane_bird_cat_dog"; of CIFAR-100 "intra" and "extra" (pairs inside superclasses, and across
            them), and "extra_published" (the list of the authors' code, which has not one class of each).
        pairing: "fixed" pairs the classes of a set as they stand, for all attackers; "random" draws pairs for each.
        strength: the share of the attackers' examples of these classes whose labels are swapped.
    """

    classes: str | tuple[tuple[int, ...], ...] = MIRRORED
    pairing: Literal["fixed", "random"] = "fixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairing not in ("fixed", "random"):
            raise BadInput(f"pairing must be fixed or random, not {self.pairing!r}")
        if isinstance(self.classes, str):
            if self.classes not in (*NAMED, MIRRORED):
                raise BadInput(f"classes must be lists or one of {', '.join((MIRRORED, *NAMED))}, not {self.classes!r}")
            return
        if not self.classes:
            raise BadInput("classes is empty: expected sets of classes such as [[0, 2], [3, 5]]")
        odd = next((some for some in self.classes if len(some) % 2 or not some), None)
        if odd is not None:
            raise BadInput(f"classes are swapped in pairs: expected an even number in every set, not {list(odd)}")
        flat = [number for some in self.classes for number in some]
        if len(set(flat)) < len(flat):
            raise BadInput(f"every class can be swapped once: expected different ones, not {flat}")

    def fitted(self, task: Task, /) -> Labels:
        if task.target != "classes":
            raise BadInput(f"labels cannot be flipped: the attack swaps classes, and these data have {task.target}")
        mirrored = tuple((number, task.classes - 1 - number) for number in range(task.classes // 2))
        sets = mirrored if self.classes == MIRRORED else self.sets
        wrong = [number for some in sets for number in some if not 0 <= number < task.classes]
        if wrong or not sets:
            number = wrong[0] if wrong else 1
            raise BadInput(f"there is no class {number} to swap: these data have classes 0 to {task.classes - 1}")
        return replace(self, classes=sets)

    @property
    def sets(self) -> Sets:
        """The sets of classes that are swapped among themselves."""
        return NAMED[self.classes] if isinstance(self.classes, str) else self.classes

    def poisoned(self, client: ClientData, rng: np.random.Generator, /) -> ClientData:
        own = own_examples(client)
        labels: NDArray[np.int64] = own.labels
        swapped = labels.copy()
        for one, other in self.pairs(rng):
            swapped[labels == one], swapped[labels == other] = other, one
        chosen = rng.random(len(labels)) < self.strength
        return with_own(client, Poisoned.of(own, torch.from_numpy(np.where(chosen, swapped, labels))))

    def pairs(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        """The classes that are swapped."""
        orders = [rng.permutation(some).tolist() if self.pairing == "random" else some for some in self.sets]
        return [(order[place], order[place + 1]) for order in orders for place in range(0, len(order), 2)]

    def watched(self, test: Store, /) -> Mapping[str, Store]:
        attacked = np.isin(test.labels, [number for some in self.sets for number in some])
        return {ATTACKED_ACCURACY: test.picked(torch.from_numpy(np.flatnonzero(attacked)))} if attacked.any() else {}
