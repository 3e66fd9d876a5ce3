"""The queue of transaction markers for another broker: sent in batches, one WriteTxnMarkers in flight at a time.

Rules:
- `Markers` decides whether a queued marker is still wanted when its turn comes, and interprets its answer.
- A batch has one entry per transaction, with all of its partitions that the broker leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.net.peer import Unanswered
from ottla.txn.event import WriteMarkers
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.coordinators.markers import Markers
    from ottla.broker.coordinators.peers import BrokerPeers
    from ottla.broker.coordinators.transaction_driver import TransactionDriver

#: A larger batch would occupy the loop of the receiving broker for more than some milliseconds.
_BATCH_MAX = 500


class Ending(NamedTuple):
    """A transaction whose outcome is decided, and the driver to notify when all of its markers are written."""

    driver: TransactionDriver
    effect: WriteMarkers
    #: The partitions that have no committed marker yet.
    left: set[TopicPartition]
    #: Partition -> the broker to which its marker was sent, until the marker is committed.
    sent: dict[TopicPartition, int]

    @property
    def epoch(self) -> int:
        """The coordinator's epoch: the leader epoch of its partition of `__transaction_state`."""
        return self.driver.partition.leader_epoch


_Key = tuple[TopicPartition, str]


class MarkerQueue:
    """The markers for one broker. `Markers` creates it."""

    def __init__(self, markers: Markers, loop: asyncio.AbstractEventLoop, peers: BrokerPeers, broker_id: int) -> None:
        self._markers = markers
        self._loop = loop
        self._peers = peers
        self._broker_id = broker_id
        self._waiting: dict[_Key, Ending] = {}
        self._busy = False

    def __len__(self) -> int:
        return len(self._waiting) + self._busy

    def add(self, tp: TopicPartition, ending: Ending) -> None:
        """Queue this marker; all markers of one turn of the loop go in one request."""
        self._waiting[tp, ending.effect.transactional_id] = ending
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        batch: dict[_Key, Ending] = {}
        for key in list(islice(self._waiting, _BATCH_MAX)):
            ending = self._waiting.pop(key)
            if self._markers.wants(key[0], ending, self._broker_id):
                batch[key] = ending
        if batch:
            self._peers.ask(self._broker_id, _request(batch), partial(self._answered, batch), at_least=1)
        elif self._waiting:
            self._loop.call_soon(self._send)
        else:
            self._busy = False

    def _answered(self, batch: Mapping[_Key, Ending], answer: Any) -> None:
        codes = None if isinstance(answer, Unanswered) else _codes(answer)
        for (tp, _), ending in batch.items():
            unsaid = ErrorCode.UNKNOWN_SERVER_ERROR
            code = None if codes is None else codes.get((ending.effect.producer_id, tp), unsaid)
            self._markers.answered(tp, ending, self._broker_id, code)
        self._send()


def _request(batch: Mapping[_Key, Ending]) -> WriteTxnMarkersRequest:
    markers: dict[int, WritableTxnMarker] = {}
    topics: dict[tuple[int, str], WritableTxnMarkerTopic] = {}
    for (tp, _), ending in batch.items():
        effect = ending.effect
        marker = markers.get(effect.producer_id)
        if marker is None:
            marker = markers[effect.producer_id] = WritableTxnMarker(
                producer_id=effect.producer_id,
                producer_epoch=effect.producer_epoch,
                transaction_result=effect.committed,
                coordinator_epoch=ending.epoch,
                transaction_version=effect.transaction_version,
            )
        topic = topics.get((effect.producer_id, tp.topic))
        if topic is None:
            topic = topics[effect.producer_id, tp.topic] = WritableTxnMarkerTopic(name=tp.topic)
            marker.topics.append(topic)
        topic.partition_indexes.append(tp.partition)
    return WriteTxnMarkersRequest(markers=list(markers.values()))


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], int]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
