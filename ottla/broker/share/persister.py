"""The client side of the share coordinators: sends each request to the coordinator of its share partition.

Rules:
- The coordinator is the leader of its partition of `__share_group_state`: this node, by a call, or another broker.
- Answers come by callback, at once or later. A request that fails because a coordinator moves, loads, cannot be reached
  or has just failed is retried a few times with growing backoff; then the caller gets the error. All requests may be
  executed twice.
- The requests of a share partition are sent one after the other: a retried write must not follow a later one, and a new
  reader must see what was acknowledged before.
- What a group coordinator asked is not retried once another one has replaced it, which asks on its own.
- A request about many partitions is answered after the last of them.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple
from ottla.metadata.image import NO_LEADER
from ottla.net.peer import Unanswered
from ottla.share.partition import Write
from ottla.share.state import SharePartitionKey
from ottla.wire.api import delete_share_group_state as delete
from ottla.wire.api import initialize_share_group_state as initialize
from ottla.wire.api import read_share_group_state as read
from ottla.wire.api import read_share_group_state_summary as summary
from ottla.wire.api import write_share_group_state as write
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.broker.coordinators.peers import BrokerPeers
    from ottla.broker.partitions.leadership import Leadership
    from ottla.broker.runtime import Runtime
    from ottla.broker.share.coordinators import ShareStates

_RETRIABLE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_LATEST = -1
#: A failed coordinator is created again after a second, so two attempts may be needed to reach it. A coordinator whose
#: broker has died moves at the end of the broker's session.
_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0)

Errors = dict[tuple[Uuid, int], KafkaError]


class _Question(NamedTuple):
    """A request about one share partition; `done` gets its part of the response, or the KafkaError."""

    key: SharePartitionKey
    request: Any
    done: Callable[[Any], None]
    #: Whether its sender has been replaced, so that it must not be sent again.
    is_over: Callable[[], bool] = lambda: False


class Persister:
    """A node's access to share coordinators, for its group coordinators and share partitions. The node creates it."""

    def __init__(self, runtime: Runtime, coordinators: ShareStates, leadership: Leadership, peers: BrokerPeers) -> None:
        self._runtime = runtime
        self._coordinators = coordinators
        self._leadership = leadership
        self._retries: set[TimerHandle] = set()
        self.peers = peers
        #: Share partition -> requests that wait for the one in flight.
        self._waiting: dict[SharePartitionKey, deque[_Question]] = {}
        self._closed = False

    def close(self) -> None:
        """Retry nothing more. Requests in flight end unanswered in the next turn of the loop."""
        self._closed = True
        self.peers.close()
        for retry in self._retries:
            retry.cancel()
        self._retries.clear()

    # -- for group coordinators

    def initialize(
        self,
        group_id: str,
        state_epoch: int,
        offsets: Mapping[Uuid, Mapping[int, int]],
        done: Callable[[Errors], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Initialize the state of partitions, each at its offset."""
        self._ask_all(
            (
                (
                    SharePartitionKey(group_id, topic_id, index),
                    initialize.InitializeShareGroupStateRequest(
                        group_id=group_id,
                        topics=[
                            initialize.InitializeStateData(
                                topic_id=topic_id,
                                partitions=[
                                    initialize.PartitionData(
                                        partition=index, state_epoch=state_epoch, start_offset=offset
                                    )
                                ],
                            )
                        ],
                    ),
                )
                for topic_id, partitions in offsets.items()
                for index, offset in partitions.items()
            ),
            done,
            is_over,
        )

    def delete(
        self,
        group_id: str,
        partitions: Mapping[Uuid, Sequence[int]],
        done: Callable[[Errors], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Delete the state of partitions."""
        self._ask_all(
            (
                (
                    SharePartitionKey(group_id, topic_id, index),
                    delete.DeleteShareGroupStateRequest(
                        group_id=group_id,
                        topics=[
                            delete.DeleteStateData(
                                topic_id=topic_id, partitions=[delete.PartitionData(partition=index)]
                            )
                        ],
                    ),
                )
                for topic_id, indexes in partitions.items()
                for index in indexes
            ),
            done,
            is_over,
        )

    def _ask_all(
        self,
        asked: Iterable[tuple[SharePartitionKey, Any]],
        done: Callable[[Errors], None],
        is_over: Callable[[], bool],
    ) -> None:
        waiting = list(asked)
        left = len(waiting)
        errors: Errors = {}

        def answered(key: SharePartitionKey, result: Any) -> None:
            nonlocal left
            left -= 1
            if isinstance(result, KafkaError):
                errors[key.topic_id, key.partition] = result
            if not left:
                done(errors)

        if not waiting:
            done(errors)
        for key, request in waiting:
            self._ask_in_order(_Question(key, request, partial(answered, key), is_over))

    # -- for share partitions

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Callable[[Any], None]) -> None:
        """Read a complete state; `done` gets a `PartitionResult` or the KafkaError."""
        partition = read.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read.ReadStateData(topic_id=key.topic_id, partitions=[partition])
        request = read.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        self._ask_in_order(_Question(key, request, done))

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        change: Write,
        done: Callable[[Any], None],
    ) -> None:
        """Store a change; `done` gets a KafkaError if that fails."""
        partition = write.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=[
                write.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in change.batches
            ],
        )
        topic = write.WriteStateData(topic_id=key.topic_id, partitions=[partition])
        request = write.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        self._ask_in_order(_Question(key, request, done))

    def high_watermark(self, tp: TopicPartition, done: Callable[[int | KafkaError], None]) -> None:
        """The high watermark of a partition according to its leader, here or on another broker."""
        topic = self._runtime.image.topics.get(tp.topic)
        known = topic is not None and 0 <= tp.partition < len(topic.partitions)
        leader = topic.partitions[tp.partition].leader if topic is not None and known else NO_LEADER
        if leader in (NO_LEADER, self._runtime.node_id):
            try:
                return done(self._leadership.find(*tp).high_watermark)
            except KafkaError as error:
                return done(error)

        def listed(answer: Any) -> None:
            if isinstance(answer, Unanswered):
                return done(KafkaError(ErrorCode.NETWORK_EXCEPTION, str(answer)))
            part = answer.topics[0].partitions[0]
            return done(KafkaError(ErrorCode.of(part.error_code)) if part.error_code else part.offset)

        wanted = ListOffsetsPartition(partition_index=tp.partition, timestamp=_LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=tp.topic, partitions=[wanted])])
        return self.peers.ask(leader, request, listed)

    def summary(self, key: SharePartitionKey, done: Callable[[Any], None]) -> None:
        """Read a state without its batches; `done` gets a `PartitionResult` or the KafkaError."""
        partition = summary.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=[partition])
        request = summary.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        self._ask(_Question(key, request, done))

    # -- requests

    def _ask_in_order(self, question: _Question) -> None:
        waiting = self._waiting.get(question.key)
        if waiting is not None:
            waiting.append(question)
        else:
            self._waiting[question.key] = deque()
            self._ask_next(question)

    def _ask_next(self, question: _Question) -> None:
        def answered(result: Any) -> None:
            waiting = self._waiting[question.key]
            if waiting:
                self._runtime.loop.call_soon(self._ask_next, waiting.popleft())
            else:
                del self._waiting[question.key]
            question.done(result)

        self._ask(question._replace(done=answered))

    def _ask(self, question: _Question, attempt: int = 0) -> None:
        key, request, done, is_over = question
        if is_over():
            return done(KafkaError(ErrorCode.NOT_COORDINATOR))

        def answered(response: Any) -> None:
            result = _result(response)
            if isinstance(result, KafkaError) and result.code in _RETRIABLE and attempt < len(_RETRY_SECONDS):
                if not self._closed:
                    self._retry_later(question, attempt)
            else:
                done(result)

        def on_response(answer: Any) -> None:
            if isinstance(answer, Unanswered):
                answer = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(answer))
            answered(answer)

        def ask() -> None:
            leader = self._leader(key)
            if leader not in (NO_LEADER, self._runtime.node_id):
                return self.peers.ask(leader, request, on_response)
            try:
                driver = self._coordinators.driver_of(key.text)
            except KafkaError as error:
                return answered(error)
            driver.ask(request, 0, answered)
            return None

        return self._coordinators.ensure_topic(ask)

    def _leader(self, key: SharePartitionKey) -> int:
        """The broker that coordinates a share partition."""
        states = self._coordinators
        topic = self._runtime.image.topics.get(states.topic)
        return NO_LEADER if topic is None else topic.partitions[states.partition_of(key.text)].leader

    def _retry_later(self, question: _Question, attempt: int) -> None:
        def retry_now() -> None:
            self._retries.discard(retry)
            self._ask(question, attempt + 1)

        retry = self._runtime.loop.call_later(_RETRY_SECONDS[attempt], retry_now)
        self._retries.add(retry)


def _result(response: Any) -> Any:
    """The partition's part of a response, or its error."""
    if isinstance(response, KafkaError):
        return response
    result = response.results[0].partitions[0]
    if result.error_code:
        return KafkaError(ErrorCode.of(result.error_code), result.error_message or "")
    return result
