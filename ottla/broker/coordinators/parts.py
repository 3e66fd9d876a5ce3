"""The parts of a node that every kind of coordinator uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.kernel.error import KafkaError
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.leadership import Leadership
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.runtime import Runtime
    from ottla.wire.api.create_topics import CreatableTopic

#: Creates topics, and calls the function with topic name -> error once they can be used.
CreateTopics = Callable[[list["CreatableTopic"], Callable[[dict[str, KafkaError]], None]], None]


class CoordinatorParts(NamedTuple):
    """What coordinators take from the node, which creates one for all of them."""

    runtime: Runtime
    leadership: Leadership
    flusher: Flusher
    log_dirs: LogDirs
    create_topics: CreateTopics
