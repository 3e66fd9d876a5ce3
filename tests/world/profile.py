"""The histories of `make world` by name, and what each seed of one is run as."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.world.cluster import run_cluster_history
from tests.world.commits import run_commits
from tests.world.eos import run_eos
from tests.world.history import History, run_history
from tests.world.operated import run_operated
from tests.world.reads import run_reads
from tests.world.replicated import run_replicated
from tests.world.ten_minutes import run_ten_minutes

#: Name -> a history by a seed.
PROFILES: dict[str, Callable[[int], History]] = {
    # Three nodes that are each alone.
    "alone": run_history,
    # A controller and two brokers, a replica a partition.
    "cluster": run_cluster_history,
    # Three nodes that are broker and voter, a replica a partition.
    "voters": partial(run_cluster_history, voters=3),
    # A controller and three brokers, three replicas a partition.
    "replicated": run_replicated,
    # Three nodes that are both, three replicas a partition, ten minutes of faults of every kind.
    "ten-minutes": run_ten_minutes,
    # The replicated one without faults but one: the coordinator of a group dies right after it has confirmed a commit.
    "commits": run_commits,
    # The same, and a leader dies right after a consumer was served records of its partition.
    "reads": run_reads,
    # The replicated one, and clients that want every record once: transactions, groups of both protocols, share groups.
    "eos": run_eos,
    # The same on three nodes that are broker and voter: coordinators, leaders and controllers fall together.
    "whole": partial(run_eos, voters=3),
    # The same with a broker more, and operators: elections, reassignments, a topic that is made and deleted again.
    "operated": run_operated,
}

#: The profiles whose clients' operations are a history of Jepsen's kafka workload: one cluster, one topic, and no
#: transactions. Name -> a history by a seed, and the file for its operations.
RECORDED: dict[str, Callable[[int, Path], History]] = {"replicated": run_replicated, "ten-minutes": run_ten_minutes}
