"""The rules of advice: when, what, and the published number behind it. A table, read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedrelay.studies.advise.evidence import MANY_STEPS
from fedrelay.studies.advise.facts import ALIKE, DIVERSE, ONE_CLASS, Facts

ENOUGH_VISITS = 20
OFTEN = 0.1
FEW = 20
"""Clients that are silos."""
FEW_TO_GROUP = 50
"""So few clients that random groups may lack classes."""
LONG = 500
"""Rounds."""
SLOW = 4.0
LARGE = 10**9


@dataclass(frozen=True)
class Rule:
    """A row of the table. `tries` are methods for the short-list, `without` those that are taken off it."""

    name: str
    when: str
    holds: Callable[[Facts], bool]
    advice: str
    evidence: str
    source: str
    tries: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def alone(facts: Facts) -> bool:
    return facts.clients == 1


def several(facts: Facts) -> bool:
    return facts.clients > 1 and facts.rounds > 1


def differ(facts: Facts) -> bool:
    return several(facts) and facts.level != "alike"


def chains_win(facts: Facts) -> bool:
    """Where all published tables are for chains."""
    return several(facts) and facts.level == "one class" and not facts.small and facts.steps <= MANY_STEPS


def come_back(facts: Facts) -> bool:
    return facts.state and facts.fraction >= OFTEN and facts.visits >= ENOUGH_VISITS


def chained(facts: Facts) -> bool:
    return several(facts) and facts.reach != "none"


STATEFUL = ("feddyn", "scaffold", "fedseq+feddyn")
DIRECT = ("fedseq", "fedseq+feddyn", "fedseq2par", "fedasyncseq", "fedcyclic")

RULES: tuple[Rule, ...] = (
    Rule(
        "one client",
        "there is one client",
        alone,
        "There is nobody to learn with: train where the data is (`centralized`).",
        "Every method here is the same training when there is one client.",
        "by definition",
        ("centralized",),
    ),
    Rule(
        "one pass",
        f"one round is all there is, and at most {FEW} clients",
        lambda facts: 1 < facts.clients <= FEW and facts.rounds == 1 and facts.reach != "none",
        "One chain through everybody, `fedelmy` or plain `sequential`; three passes are enough if more can be had.",
        "10 clients, Dirichlet 0.5, 200 epochs: FedELMY 80.3, plain chain 73.6, DENSE 64.6, one-shot "
        "averaging 18.6; PACS "
        "33.7 to 47.3 by order; 49.1, 56.4, 57.1 after 1, 3, 7 passes.",
        "FedELMY 2024",
        ("fedelmy", "sequential"),
    ),
    Rule(
        "alike",
        f"h beyond chance is below {ALIKE:g} (or, where classes are not known, the diversity of gradients is at most "
        f"{DIVERSE:g} above that of an even split)",
        lambda facts: several(facts) and facts.level == "alike",
        "Clients are alike in what is known of them: average, with an optimiser at the server (`fedadam`, `fedavgm`).",
        "The terms in which parallel and sequential training differ are multiplied by the heterogeneity; "
        "FedAdam needed 87 "
        "rounds on FEMNIST where FedAvg needed 470. No tuned comparison was published for alike clients.",
        "Li & Lyu 2023 (theory); FedGSP 2022",
        ("fedavg", "fedadam", "fedavgm"),
    ),
    Rule(
        "alike, but traffic counts",
        "clients are alike, reach one another directly, and not the clock decides",
        lambda facts: several(facts) and facts.level == "alike" and facts.reach == "direct" and facts.by != "time",
        "A chain sends (1 + 1/n)/2 of FedAvg's messages, and needs no more rounds: try `fedseq` for the traffic alone.",
        "At leading order the bound of sequential training is never above that of parallel training.",
        "Li & Lyu 2023 (theory); FedSeq journal 2024, Table 3",
        ("fedseq",),
    ),
    Rule(
        "one class per client",
        f"h is {ONE_CLASS:g} or more (one class of ten) or most clients have one class, h beyond chance is {ALIKE:g} "
        f"or more, the model is larger than LeNet, at most {MANY_STEPS} local steps",
        chains_win,
        "Chains (`fedseq`): every model that is averaged has then seen a mix like the whole.",
        "VGG-9 and ResNet-18, tuned: +6.5 to +34.6 points at one class per client, 2.45 times fewer rounds "
        "(median). At one "
        "rate for all 7.7 times fewer.",
        "Li & Lyu 2023 (recomputed); FedSeq 2022, Table II",
        ("fedseq",),
    ),
    Rule(
        "unlike: the price decides",
        "h beyond chance is 0.3 or more, and the rule before does not hold or the clock decides",
        lambda facts: differ(facts) and (facts.by == "time" or not chains_win(facts)),
        "Whether chains pay is a matter of price: they save rounds and messages and cost time. Server optimisers cost "
        "nothing on the clock.",
        "Tuned, two classes per client: −0.5 to +9.0 points (VGG, ResNet), −3.7 to +1.3 (small models), 1.65 "
        "times fewer "
        "rounds; a chain of 10 lost on the clock in all 54 settings where a hop takes as long as a round of FedAvg. "
        "FedAvgM brought CIFAR-10 at the most skewed split from 30.1 % to 76.9 %.",
        "Li & Lyu 2023 (recomputed); Hsu et al. 2019",
        ("fedseq", "fedadam", "fedavgm"),
    ),
    Rule(
        "one chain",
        f"unlike clients that reach one another, at most {FEW} take part in a round, and not the clock decides",
        lambda facts: differ(facts) and facts.reach == "direct" and facts.by != "time" and facts.taking_part <= FEW,
        "One chain of all that take part (`fedcyclic`) sends least of all: one message a visit, and one more.",
        "The tuned comparisons are of such a chain, of the ten clients of a round: 2.45 times fewer rounds at one "
        "class per client, 1.65 at two.",
        "Li & Lyu 2023 (recomputed); FedSeq journal 2024, Table 3",
        ("fedcyclic",),
    ),
    Rule(
        "by way of the server",
        "clients cannot reach one another, but the server passes models on",
        lambda facts: differ(facts) and facts.reach == "server",
        "Chains through the server send as much as FedAvg: `fedgsp` is made for that.",
        "34 rounds to 80 % on FEMNIST against FedAvg's 470, FedYogi's 93, FedAdam's 87. Counted in hops "
        "those 34 rounds are "
        "291: where the server's line is free, FedAdam is three times as fast.",
        "FedGSP 2022; hops computed from its growth function",
        ("fedgsp",),
        DIRECT,
    ),
    Rule(
        "unreachable",
        "nobody can pass a model on",
        lambda facts: several(facts) and facts.reach == "none",
        "Without a way from client to client there are no chains.",
        "Every chain of two or more needs one message between clients.",
        "by definition",
        (),
        (*DIRECT, "fedgsp"),
    ),
    Rule(
        "clients come back",
        "clients keep state, at least a tenth takes part in a round, and each comes 20 times or more",
        lambda facts: differ(facts) and come_back(facts),
        "Take the drift away at the client: `feddyn` with clipping, alone where the clock counts, with chains "
        "(`fedseq+feddyn`) where rounds do.",
        "CIFAR-10, one class, rounds to 80 % of the centralised accuracy at one rate for all: FedAvg 7649, "
        "SCAFFOLD 3914, "
        "FedSeq 991 (about 9,900 hops), FedDyn 954, FedSeq with FedDyn 581. FedDyn diverged on CIFAR-100 at alpha 0.",
        "FedSeq 2022, Table II",
        ("feddyn", "fedseq+feddyn"),
    ),
    Rule(
        "clients seldom come back",
        "clients keep no state, less than a tenth takes part in a round, or each comes fewer than 20 times",
        lambda facts: differ(facts) and not come_back(facts),
        "No method with state at the clients: theirs would be stale.",
        "FedDyn beats FedAvg by 12.0 points with 500 clients at fraction 0.2, by 0.4 with 3,500; FedSeq by "
        "10.6 and 5.6. "
        "SCAFFOLD's rounds grow as (1/C)^⅔: 4.6 times at 10 %, 21.5 times at 1 %.",
        "FedSeq journal 2024; Karimireddy et al. 2020",
        (),
        STATEFUL,
    ),
    Rule(
        "long runs",
        f"{LONG} rounds or more of unlike clients that reach one another",
        lambda facts: differ(facts) and facts.rounds >= LONG and facts.reach == "direct",
        "Let the number of groups grow (`fedseq2par`).",
        "Over FedSeq: +1.8 points on CIFAR-10, +5.6 on CIFAR-100, +0.9 on StackOverflow, with 2.1 to 3.1 times the "
        "parallelism.",
        "FedSeq journal 2024, Table 5",
        ("fedseq2par",),
    ),
    Rule(
        "stragglers",
        "the slowest of twenty clients takes four times as long as the one in the middle, and the clock counts",
        lambda facts: differ(facts) and facts.by == "time" and facts.stragglers >= SLOW and facts.reach == "direct",
        "If it is to be chains, do not wait for the slow ones (`fedasyncseq`).",
        "Against FedSeq: +1.1 and +4.4 points (CIFAR-10, CIFAR-100), −0.2 on FEMNIST, −1.5 on StackOverflow.",
        "FedSeq journal 2024",
        ("fedasyncseq",),
    ),
    Rule(
        "learning rates",
        "there are chains",
        chained,
        "Start chains at the rate of clients that train alone, divided by their length; try a third and "
        "three times that.",
        "Best rate in parallel / in a chain of 10: 3.3 in 18 settings, 10 in 23, 30 or more in 13 (mostly at "
        "50 local steps).",
        "Li & Lyu 2023 (recomputed)",
    ),
    Rule(
        "local work",
        f"more than {MANY_STEPS} local steps at unlike clients",
        lambda facts: differ(facts) and facts.steps > MANY_STEPS,
        "Shorter visits: one epoch, or `[local] steps = 20`, if the method is chains.",
        "CIFAR-10, ResNet-18, one class, chains of 10: 83.4, 77.0, 68.9 with 5, 20, 50 local steps.",
        "Li & Lyu 2023 (recomputed)",
    ),
    Rule(
        "length of chains",
        "there are chains",
        chained,
        "As long as the published ones, ten; on the clock no longer than groups need to be like the whole (h of 0.2).",
        "All published comparisons have chains of 10 or 11. Longer ones were not tried with tuned rates.",
        "our rule, after FedSeq 2022 and Li & Lyu 2023",
    ),
    Rule(
        "groups",
        f"unlike clients, at most {FEW_TO_GROUP} of them, whose classes are known",
        lambda facts: differ(facts) and facts.clients <= FEW_TO_GROUP and facts.classes is not None,
        "Group by what clients tell of their classes, so that no group lacks one.",
        "With many clients it hardly matters: 81.90 random, 82.30 best on CIFAR-10 at alpha 0; 46.39 and "
        "46.51 on CIFAR-100.",
        "FedSeq 2022, Table IV",
    ),
    Rule(
        "who is drawn",
        "not everybody takes part",
        lambda facts: several(facts) and facts.fraction < 1,
        'A chain does not cure the draw: `sampler = "by_size"` or `by_similarity` makes it less of a lottery.',
        "Both bounds have the same term ζ²(M − S)/(S(M − 1)); passes without replacement make it O(1/T²) "
        "instead of O(1/T).",
        "Li & Lyu 2023; Malinovsky et al. 2023; Fraboni et al. 2021",
    ),
    Rule(
        "very large models",
        "more than a billion parameters",
        lambda facts: facts.parameters > LARGE,
        "One round of averaging is about as good as many when such a model is fine-tuned: try `rounds = 1` first.",
        "One-shot averaging of fine-tuned foundation models comes close to many rounds.",
        "Wang et al. 2024",
        ("fedavg",),
    ),
    Rule(
        "attackers",
        "some clients attack",
        lambda facts: several(facts) and facts.attackers > 0,
        "Short chains: one liar spoils the chain.",
        "A share f of bad clients touches 1 − (1 − f)^n of the chains of n: with f = 0.1 65 % of those of 10.",
        "by calculation",
    ),
)
"""All rules, in the order in which they are told."""


def applied(facts: Facts) -> list[Rule]:
    """The rules that hold here."""
    return [rule for rule in RULES if rule.holds(facts)]
