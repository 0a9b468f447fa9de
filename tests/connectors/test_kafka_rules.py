"""The client keeps the rules of Cluster against a real broker, as the broker in memory does."""

from __future__ import annotations

from itertools import count

import pytest

from strandline.connectors.kafka_client import KafkaCluster
from strandline.system import SystemTasks
from strandline.testing.conformance_cluster import CLAUSES, ClusterStand
from strandline.testing.conformance_sink import WHAT

from .kafka_lives import targeted

NUMBERS = count()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__.strip("_"))
def test_the_client_keeps_the_rules(topics, clause) -> None:
    target = targeted(topics.address, topics.make(1), WHAT)
    made: list[KafkaCluster] = []

    def new() -> KafkaCluster:
        made.append(KafkaCluster(target, str))
        return made[-1]

    clause(ClusterStand(new, SystemTasks(), f"rules-{next(NUMBERS)}-"))
    for each in made:
        each.close()
