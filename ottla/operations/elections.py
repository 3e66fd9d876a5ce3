"""Leader elections: of the preferred replica, or of any live replica (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition


@dataclass(frozen=True, slots=True)
class ElectionOutcome:
    """The result: partitions with a new leader, those that had the right one already, and those that failed."""

    elected: list[TopicPartition]
    unchanged: list[TopicPartition]
    failed: dict[TopicPartition, KafkaError]


def elect(ask: Admin, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False) -> ElectionOutcome:
    """Make the first replica of each partition its leader; None: of all partitions of the cluster.

    `unclean`: elect any live replica, even one that lacks records; those are lost. KafkaError: the whole call failed.
    """
    results = ask.elect_leaders(partitions, unclean=unclean)
    unchanged = [key for key, error in results.errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {key: error for key, error in results.errors.items() if key not in unchanged}
    return ElectionOutcome(list(results.succeeded), unchanged, failed)
