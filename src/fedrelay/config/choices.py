"""Which table a parameter of a type is chosen from, or who builds it."""

from __future__ import annotations

from fedrelay.config.local import build_local
from fedrelay.config.schema import Choices
from fedrelay.data import PARTITIONS, Partition
from fedrelay.merges import GRAPHS, MERGES, Graph
from fedrelay.plans import ATTACKERS, DISTANCES, GROUPERS, Attackers, Distance, Grouper
from fedrelay.plans.growth import GROWTHS, Growth
from fedrelay.plans.sampling import SAMPLERS, Sampler
from fedrelay.runs.latency import DISTRIBUTIONS, Distribution
from fedrelay.runs.threat import ATTACKS
from fedrelay.tasks import LOSSES, METRICS, Loss, Metric
from fedrelay.types import Merge, Trait
from fedrelay.visits import TERMS, Term, Training
from fedrelay.visits.attacks import Attack
from fedrelay.visits.probe_networks import PROBES, ProbeNetwork
from fedrelay.visits.schedules import SCHEDULES, Schedule
from fedrelay.visits.traits import TRAITS

CHOICES: Choices = {
    Schedule: SCHEDULES,
    Partition: PARTITIONS,
    Sampler: SAMPLERS,
    Distribution: DISTRIBUTIONS,
    Growth: GROWTHS,
    Merge: MERGES,
    Term: TERMS,
    Trait: TRAITS,
    Distance: DISTANCES,
    Grouper: GROUPERS,
    Graph: GRAPHS,
    ProbeNetwork: PROBES,
    Loss: LOSSES,
    Metric: METRICS,
    Attack: ATTACKS,
    Attackers: ATTACKERS,
    Training: build_local,
}
