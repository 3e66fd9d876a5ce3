"""Proposes ISR changes of this node's leaders to the controller: AlterPartition, batched, one in flight (KIP-497).

Rules:
- A proposal made while a request is in flight goes with the next one.
- A proposal is sent until the controller has answered it, or this node stops leading the partition in this epoch.
- `LeaderReplica` interprets the answer for its partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.replica.leader import IsrAccepted, IsrRefused, ProposeIsr
from ottla.replica.partition import Partition
from ottla.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.broker.runtime import Runtime

_log = logging.getLogger("ottla.broker")
#: As in Apache Kafka's DefaultAlterPartitionManager.
_RETRY_SECONDS = 0.05
#: LeaderRecoveryState: a leader recovers by beginning its epoch, also after an unclean election (KIP-704).
_RECOVERED = 0
#: (topic id, partition index) -> (proposing partition, proposal, whether the ISR would grow)
_Proposed = dict[tuple[Uuid, int], tuple[Partition, ProposeIsr, bool]]


class IsrChanges:
    """A node's proposals. `Replication` creates and closes it."""

    def __init__(
        self, runtime: Runtime, controllers: Controllers, partitions: Mapping[tuple[str, int], Partition]
    ) -> None:
        self._runtime = runtime
        self._controllers = controllers
        self._partitions = partitions
        #: The controller's answers since the node's start: ISR expansions, ISR shrinks, errors.
        self.expands = self.shrinks = self.failures = 0
        self._proposed: _Proposed = {}
        self._busy = False
        self._planned: asyncio.Handle | None = None
        self._closed = False

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Queue a proposal; all proposals of this turn of the loop go in one request."""
        assert partition.machine is not None
        grows = len(proposal.members) > len(partition.machine.state.isr)
        self._proposed[partition.topic_id, partition.tp.partition] = partition, proposal, grows
        if self._planned is None:
            self._planned = self._runtime.loop.call_soon(self._send)

    def close(self) -> None:
        """Send nothing more, and drop answers that still arrive."""
        self._closed = True
        if self._planned is not None:
            self._planned.cancel()

    def _is_led(self, partition: Partition) -> bool:
        return self._partitions.get(partition.tp) is partition

    def _send(self) -> None:
        self._planned = None
        if self._busy or self._closed:
            return
        sent: _Proposed = {key: each for key, each in self._proposed.items() if self._is_led(each[0])}
        self._proposed = {}
        broker = self._runtime.image.brokers.get(self._runtime.node_id)
        if not sent or broker is None:
            return
        topics: dict[Uuid, RequestTopicData] = {}
        for (topic_id, index), (_, proposal, _) in sent.items():
            topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id)).partitions.append(
                RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.members
                    ],
                    leader_recovery_state=_RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        self._busy = True
        request = AlterPartitionRequest(
            broker_id=self._runtime.node_id, broker_epoch=broker.epoch, topics=list(topics.values())
        )
        self._controllers.ask_forever(request, lambda response: self._answered(sent, response))

    def _answered(self, sent: _Proposed, response: AlterPartitionResponse | KafkaError) -> None:
        self._busy = False
        if self._closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode.of(response.error_code)
        if isinstance(response, KafkaError) or code is not ErrorCode.NONE:
            _log.warning("the controller refused ISR changes: %s; will retry", code.name)
            return self._retry(sent)
        for topic in response.topics:
            for data in topic.partitions:
                proposed = sent.pop((topic.topic_id, data.partition_index), None)
                if proposed is not None and self._is_led(proposed[0]):
                    self._report(*proposed, data)
        return self._retry(sent)

    def _report(self, partition: Partition, proposal: ProposeIsr, grows: bool, data: Any) -> None:
        code = ErrorCode.of(data.error_code)
        if code is ErrorCode.NONE:
            self.expands += grows
            self.shrinks += not grows
            _log.info("the in-sync replicas of %s are now %s", partition.tp, data.isr)
            partition.step(IsrAccepted(proposal, data.leader_epoch, data.partition_epoch, tuple(data.isr)))
        else:
            self.failures += 1
            _log.info(
                "the controller refused %s as the in-sync replicas of %s: %s", proposal.members, partition.tp, code.name
            )
            partition.step(IsrRefused(proposal, code))

    def _retry(self, unanswered: _Proposed) -> None:
        """Send the unanswered proposals again after a moment, together with newer ones."""
        self._proposed = unanswered | self._proposed
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        if self._proposed:
            self._planned = self._runtime.loop.call_later(_RETRY_SECONDS, self._send)
