"""Routes admin calls to any broker, a leader or a coordinator, and retries retriable errors.

Rules:
- A call as a whole ends after `default.api.timeout.ms`. Items that failed for good are reported beside those that
  succeeded; items with retriable errors are requested again. An item that the answer lacks has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.admin.result import Results
from ottla.client.checked import check_calls
from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import GROUP, PROPAGATION_MS, Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.client_error import ConnectionLost, NotReachable, left_out
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.settings.client.client import AdminSettings

K = TypeVar("K")
#: A node id, or None for any node.
N = TypeVar("N", bound=int | None)
V = TypeVar("V")
R = TypeVar("R")

_COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Calls:
    """The part that all calls of the admin client share: access to the brokers."""

    _cluster: Cluster
    _settings: AdminSettings

    def __init_subclass__(cls) -> None:
        check_calls(cls)

    async def _any(self, request: object, response: type[R], read: Callable[[R], V] | None = None) -> R:
        """Ask any broker. `read` raises the KafkaError of an answer that failed as a whole."""

        async def attempt() -> R:
            connection = await self._cluster.any()
            return await self._on(connection, request, response, read)

        return await self._cluster.retry(attempt, self._settings.default_api_timeout_ms)

    async def _node(self, node_id: int, request: object, response: type[R], read: Callable[[R], V] | None = None) -> R:
        """Ask this broker."""

        async def attempt() -> R:
            connection = await self._cluster.node(node_id)
            return await self._on(connection, request, response, read)

        return await self._cluster.retry(attempt, self._settings.default_api_timeout_ms)

    async def _coordinator(
        self, name: str, attempt: Callable[[BrokerConnection], Awaitable[V]], kind: int = GROUP
    ) -> V:
        """Run `attempt` on the coordinator of this group (or another `kind`), which is looked up again if it moves."""

        async def attempt_once() -> V:
            return await attempt(await self._cluster.coordinator(kind, name, purpose=""))

        def failed(error: KafkaError | NotReachable) -> None:
            if isinstance(error, NotReachable) or error.code in _COORDINATOR_MOVED:
                self._cluster.forget_coordinator(kind, name)

        return await self._cluster.retry(attempt_once, self._settings.default_api_timeout_ms, failed)

    async def _on(
        self, connection: BrokerConnection, request: object, response: type[R], read: Callable[[R], V] | None = None
    ) -> R:
        answer = await connection.call(request, response, timeout_ms=self._settings.request_timeout_ms)
        if read is not None:
            read(answer)
        return answer

    async def _with_retries(
        self, keys: Iterable[K], attempt: Callable[[list[K]], Awaitable[dict[K, V | KafkaError]]]
    ) -> Results[K, V]:
        """Request all `keys`, and those with retriable errors again until the timeout."""
        left = list(keys)
        order = list(left)
        results: dict[K, V | KafkaError] = {}
        if not left:
            return Results({}, {})

        async def attempt_left() -> None:
            nonlocal left
            results.update(await attempt(left))
            retriable = [
                (key, error)
                for key in left
                if isinstance(error := results.get(key), KafkaError) and _is_worth_retrying(error)
            ]
            left = [key for key, _ in retriable]
            if retriable:
                raise retriable[0][1]

        deadline_ms = now_ms() + self._settings.default_api_timeout_ms
        try:
            await self._cluster.retry(attempt_left, deadline_ms - now_ms())
        except KafkaError as error:
            for key in left:
                results.setdefault(key, error)
        except NotReachable as error:
            if len(left) == len(order):
                raise
            results.update(dict.fromkeys(left, ConnectionLost(str(error))))
        return collect({key: results[key] for key in order if key in results}, order)

    async def _on_nodes(
        self,
        keys_by_node: Mapping[N, list[K]],
        ask: Callable[[BrokerConnection, list[K]], Awaitable[dict[K, V | KafkaError]]],
    ) -> dict[K, V | KafkaError]:
        """Ask each node (None: any) about its keys. One that does not answer takes nothing from the others.

        NotReachable if that is the outcome at every node.
        """

        async def ask_one(node_id: N, keys: list[K]) -> dict[K, V | KafkaError] | NotReachable:
            try:
                connection = await (self._cluster.any() if node_id is None else self._cluster.node(node_id))
                return await ask(connection, keys)
            except NotReachable as error:
                return error
            except KafkaError as error:
                return dict.fromkeys(keys, error)

        answers = await asyncio.gather(*(ask_one(node_id, keys) for node_id, keys in keys_by_node.items()))
        outcomes: dict[K, V | KafkaError] = {}
        unreachable = [answer for answer in answers if isinstance(answer, NotReachable)]
        if unreachable:
            self._cluster.metadata.request_update(now_ms())
        if unreachable and len(unreachable) == len(answers):
            raise unreachable[0]
        for keys, answer in zip(keys_by_node.values(), answers, strict=True):
            if isinstance(answer, NotReachable):
                answer = dict.fromkeys(keys, ConnectionLost(str(answer)))
            outcomes.update(answer)
        return outcomes

    async def _each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[V]]) -> Results[K, V]:
        """Ask about each key on its own. NotReachable if that is the outcome of every key."""
        outcomes: dict[K, V | KafkaError] = {}
        unreachable: NotReachable | None = None
        reached = False
        for key in keys:
            try:
                outcomes[key] = await ask(key)
                reached = True
            except KafkaError as error:
                outcomes[key] = error
                reached = True
            except NotReachable as error:
                outcomes[key] = ConnectionLost(str(error))
                unreachable = error
        if unreachable is not None and not reached:
            raise unreachable
        return collect(outcomes)

    async def _leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
        """The partitions by their leader's node id, and an error for each without a leader or that does not exist."""
        wanted = list(partitions)
        timeout_ms = min(PROPAGATION_MS, self._settings.default_api_timeout_ms)
        try:
            await self._cluster.known({partition.topic for partition in wanted}, timeout_ms)
        except KafkaError as error:
            if error.code not in _MISSING:
                raise
        metadata = self._cluster.metadata
        if any(partition.topic in metadata.topics and not metadata.has(partition) for partition in wanted):
            # The topic may have grown.
            await self._cluster.update()
        led: dict[int, list[TopicPartition]] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in wanted:
            topic = self._cluster.metadata.topics.get(partition.topic)
            state = self._cluster.metadata.leader(*partition)
            if state is not None:
                led.setdefault(state.leader, []).append(partition)
            elif topic is None:
                errors[partition] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {partition.topic}"
                )
            elif partition.partition >= len(topic.partitions):
                why = f"topic {partition.topic} has no partition {partition.partition}"
                why += f" (expected 0 to {len(topic.partitions) - 1})"
                errors[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            else:
                errors[partition] = KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader now"
                )
        return led, errors

    def _node_or_unknown(self, node_id: int) -> ClusterNode:
        """The node with this id; a node that is not live has no address."""
        return self._cluster.metadata.nodes.get(node_id) or ClusterNode(node_id, "", -1)


def _is_worth_retrying(error: KafkaError) -> bool:
    # Missing topics are retriable for a consumer, which waits for its topic; an admin call reports them at once.
    return error.code.retriable and error.code not in _MISSING


def collect(results: dict[K, V | KafkaError], asked: Iterable[K] = ()) -> Results[K, V]:
    """Separate values from errors. A key of `asked` that the answer lacks has failed, as in Java's client."""
    for key in asked:
        if key not in results:
            results[key] = left_out(key)
    good = {key: value for key, value in results.items() if not isinstance(value, KafkaError)}
    return Results(good, {key: value for key, value in results.items() if isinstance(value, KafkaError)})


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, the form of most requests."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return numbers
