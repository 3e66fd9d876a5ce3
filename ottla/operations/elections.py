"""Elections of leaders: the preferred replica of partitions, or any that lives (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition


@dataclass(frozen=True, slots=True)
class ElectionOutcome:
    """What came of it: partitions with a new leader, those that had the right one, and those that failed."""

    elected: list[TopicPartition]
    unchanged: list[TopicPartition]
    failed: dict[TopicPartition, KafkaError]


def elect(ask: Admin, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False) -> ElectionOutcome:
    """Make the first replica of each partition its leader; of all partitions of the cluster when none are named.

    `unclean`: any replica that lives, even one that lacks records: they are lost. KafkaError: the whole call failed.
    """
    results = ask.elect_leaders(partitions, unclean=unclean)
    unchanged = [key for key, one in results.errors.items() if one.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {key: one for key, one in results.errors.items() if key not in unchanged}
    return ElectionOutcome(list(results.succeeded), unchanged, failed)
