"""The connections of a client and its up-to-date view of the cluster; producers, consumers and admin clients use it.

Rules:
- Connections are kept by address and purpose: a broker answers in order, so a fetch or a join that waits long must not
  hold up other requests.
- After a failed connection attempt an address is not retried for a growing time (`reconnect.backoff`). When no known
  broker can be reached, the client falls back to `bootstrap.servers` (KIP-899).
- A failure is logged once, and so is the recovery from it. A refused authentication or TLS handshake is not logged
  here: it is raised to the program, because a retry does not help.

KIPs: 899 and 1102 (rebootstrap), 580 (exponential backoff), 699 (batched FindCoordinator).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ottla.client.connection.clock import Backoff, now_ms, randomness
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode, Metadata
from ottla.client.connection.metric import Sampled
from ottla.client.connection.node_metric import NodeMeter, NodeMetrics
from ottla.kernel.argument import topic_fault
from ottla.kernel.client_error import (
    AuthenticationFailed,
    ClientClosed,
    NotReachable,
    RequestTimedOut,
    TlsFailed,
    check,
    only,
)
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.security.sign_in import Security
from ottla.settings.client.client import ClientSettings
from ottla.wire.api import ApiKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("ottla.client")

#: Coordinator types in FindCoordinator.
GROUP, TRANSACTION, SHARE = 0, 1, 2
#: Leader epochs in Metadata are reliable from this version on: older brokers may return stale ones (KAFKA-9261).
_EPOCHS_FROM = 9

#: Within this time every live broker knows a topic, or a partition, that was just created.
PROPAGATION_MS = 2_000

Address = tuple[str, int]


class _AddressState:
    """The connection state of an address: one attempt at a time, and a backoff and more time after each failure."""

    __slots__ = ("backoff", "error", "lock", "logged", "retry_at_ms", "setup_timeout")

    def __init__(self, settings: ClientSettings) -> None:
        self.lock = asyncio.Lock()
        self.backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self.setup_timeout = Backoff(
            settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms
        )
        self.retry_at_ms = 0
        self.error: OttlaError | KafkaError | None = None
        self.logged = False


class Cluster:
    """A client's access to the brokers. The client creates it on its loop and closes it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.metadata = Metadata(
            max_age_ms=settings.metadata_max_age_ms, max_idle_ms=settings.metadata_max_idle_ms, now_ms=now_ms()
        )
        #: Called without arguments whenever an answer has been applied to the metadata.
        self.on_update: list[Callable[[], None]] = []
        self.closed = False
        self._security = Security(settings)
        self.connections_opened = Sampled(now_ms())
        self._meters: dict[Address, NodeMeter] = {}
        self._connections: dict[tuple[Address, str], BrokerConnection] = {}
        self._address_states: dict[Address, _AddressState] = {}
        #: As the brokers named them: a broker that has moved may still have its former address in the metadata.
        self._coordinators: dict[tuple[int, str], ClusterNode] = {}
        self._update_lock = asyncio.Lock()
        #: When the brokers were first asked for metadata that they have not given yet; None if they have.
        self._asked_at_ms: int | None = None

    # ---- connections

    async def node(self, node_id: int, purpose: str = "") -> BrokerConnection:
        """A connection to this broker. NotReachable if none can be opened now."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            await self.update()
            node = self.metadata.nodes.get(node_id)
            if node is None:
                raise NotReachable(f"node {node_id} is not a live broker of this cluster")
        return await self.address((node.host, node.port), purpose)

    async def address(self, address: Address, purpose: str = "") -> BrokerConnection:
        """A connection to this address, opened if necessary."""
        connection = self._connections.get((address, purpose))
        if connection is not None and connection.closed is None:
            return connection
        if self.closed:
            raise ClientClosed("this client is closed")
        address_state = self._address_states.get(address)
        if address_state is None:
            address_state = self._address_states[address] = _AddressState(self.settings)
        async with address_state.lock:
            connection = self._connections.get((address, purpose))
            if connection is not None and connection.closed is None:
                return connection
            if address_state.error is not None and now_ms() < address_state.retry_at_ms:
                raise address_state.error
            try:
                meter = self._meters.setdefault(address, NodeMeter(now_ms()))
                timeout_ms = address_state.setup_timeout.next_ms()
                connection = await BrokerConnection.open(*address, self.settings, self._security, meter, timeout_ms)
            except (OttlaError, KafkaError) as error:
                if not address_state.logged and not isinstance(error, (AuthenticationFailed, TlsFailed)):
                    _log.warning("%s; trying again", error)
                    address_state.logged = True
                address_state.error = error
                address_state.retry_at_ms = now_ms() + address_state.backoff.next_ms()
                raise
            if address_state.logged:
                _log.warning("%s:%s can be reached again", *address)
            address_state.error, address_state.logged = None, False
            address_state.backoff.attempts = address_state.setup_timeout.attempts = 0
            if self._is_closed():
                connection.close()
                raise ClientClosed("this client is closed")
            self._connections[address, purpose] = connection
            self.connections_opened.record(1, now_ms())
            return connection

    async def any(self) -> BrokerConnection:
        """A connection to any broker: the least busy open one, else a known broker, else a bootstrap server.

        Brokers that throttle this client come last.
        """
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        usable = {
            address: connection
            for (address, purpose), connection in self._connections.items()
            if connection.closed is None and not purpose and (not known or address in known)
        }
        if free := [connection for connection in usable.values() if not connection.throttled]:
            return min(free, key=lambda connection: connection.in_flight)
        bootstrap = list(self.settings.bootstrap_servers)
        for servers in (known, bootstrap):
            randomness().shuffle(servers)
            servers.sort(key=usable.__contains__)
        if not known or self.settings.metadata_recovery_strategy == "rebootstrap":
            known += [server for server in bootstrap if server not in known]
        first: OttlaError | None = None
        for address in known:
            try:
                return await self.address(address)
            except NotReachable as error:
                first = first or error
        raise NotReachable(f"no broker can be reached: {first}") from first

    def node_metrics(self) -> dict[int, NodeMetrics]:
        """The metrics of the brokers in the metadata, by node id."""
        now = now_ms()
        metrics = {}
        for node in list(self.metadata.nodes.values()):
            meter = self._meters.get((node.host, node.port))
            if meter is not None:
                metrics[node.id] = meter.snapshot(now)
        return metrics

    def _is_closed(self) -> bool:
        return self.closed

    def close_idle(self) -> None:
        """Close the connections not used for `connections.max.idle.ms`."""
        idle_ms = self.settings.connections_max_idle_ms
        now = asyncio.get_running_loop().time()
        for key, connection in list(self._connections.items()):
            if connection.closed is not None or (
                idle_ms >= 0 and not connection.in_flight and now - connection.used_at > idle_ms / 1000
            ):
                connection.close("it was idle")
                del self._connections[key]

    async def close(self) -> None:
        """Close every connection once its written data is sent."""
        self.closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.finish() for connection in connections))

    # ---- metadata

    async def update(self, topics: Iterable[str] | None = None) -> None:
        """Update the metadata of the topics in use and of `topics`. Concurrent callers share one answer."""
        if topics is not None:
            self.metadata.want(topics, now_ms())
        seen = self.metadata.version
        async with self._update_lock:
            if self.metadata.version != seen and not self._has_unknown_topics():
                return
            self.close_idle()
            trigger_ms = self.settings.metadata_recovery_rebootstrap_trigger_ms
            if self._asked_at_ms is None:
                self._asked_at_ms = now_ms()
            elif self.metadata.nodes and now_ms() - self._asked_at_ms > trigger_ms:
                self._rebootstrap(f"no metadata was received for {trigger_ms} ms")
            await self._ask(self.metadata.topics_to_ask(now_ms()))

    def _rebootstrap(self, why: str) -> bool:
        """Forget the known brokers and start again from `bootstrap.servers` (KIP-1102), if the settings allow that."""
        if self.settings.metadata_recovery_strategy != "rebootstrap":
            return False
        _log.warning("starting again from bootstrap.servers: %s", why)
        self.metadata.nodes.clear()
        self._coordinators.clear()
        self._asked_at_ms = now_ms()
        for (_, purpose), connection in list(self._connections.items()):
            # The others end with their pending requests.
            if not purpose:
                connection.close("starting again from bootstrap.servers")
        return True

    def _has_unknown_topics(self) -> bool:
        topics = self.metadata.topics_to_ask(now_ms())
        if topics is None:
            return not self.metadata.has_all_topics
        return any(topic not in self.metadata.topics for topic in topics)

    async def _ask(self, topics: list[str] | None, *, create: bool | None = None) -> MetadataResponse:
        connection = await self.any()
        if create is None:
            create = bool(getattr(self.settings, "allow_auto_create_topics", False))
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        timeout_ms = self.settings.request_timeout_ms
        version = connection.version_of(ApiKey.METADATA)
        response = await connection.call(request, MetadataResponse, timeout_ms=timeout_ms, version=version)
        if response.error_code != ErrorCode.REBOOTSTRAP_REQUIRED:
            check(response.error_code)
        elif self._rebootstrap("the cluster requests it"):
            raise NotReachable("the cluster requested a new start from bootstrap.servers")
        if not response.brokers:
            # A broker that starts, and has not read the cluster's metadata, would deny all topics.
            raise NotReachable(f"{connection.host}:{connection.port} does not know the brokers of its cluster yet")
        self.metadata.apply(response, now_ms(), epochs=version >= _EPOCHS_FROM, complete=topics is None)
        self._asked_at_ms = None
        for callback in self.on_update:
            callback()
        return response

    async def known(self, topics: Iterable[str], timeout_ms: int) -> None:
        """Wait until all of `topics` are known with their partitions; KafkaError for one that is missing in time."""
        names = list(topics)
        self.metadata.want(names, now_ms())
        if all(name in self.metadata.topics for name in names):
            return

        async def attempt() -> None:
            await self.update(names)
            for name in names:
                if name not in self.metadata.topics:
                    code = self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    raise KafkaError(code, _topic_error_text(name, code))

        await self.retry(attempt, timeout_ms)

    async def known_partition(self, partition: TopicPartition, timeout_ms: int) -> None:
        """Wait until this partition is known; KafkaError if the topic does not have it, even after a short time."""
        deadline_ms = now_ms() + timeout_ms
        await self.known([partition.topic], timeout_ms)
        if self.metadata.has(partition):
            return

        async def attempt() -> None:
            await self.update([partition.topic])
            if not self.metadata.has(partition):
                topic = self.metadata.topics.get(partition.topic)
                why = f"topic {partition.topic} has no partition {partition.partition}"
                why += f" (expected 0 to {0 if topic is None else len(topic.partitions) - 1})"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

        await self.retry(attempt, max(0, min(deadline_ms - now_ms(), PROPAGATION_MS)))

    async def missing(self, topics: Iterable[str]) -> list[str]:
        """The names in `topics` that do not exist now. Never creates a topic."""
        names = [name for name in topics if name not in self.metadata.topics]
        if names:
            await self._ask(names, create=False)
        absent = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return sorted(name for name in names if self.metadata.errors.get(name) in absent)

    def raise_refused(self, topics: Iterable[str]) -> None:
        """Raise the error of one of these topics that the brokers refuse to describe: once for each such answer."""
        untold, self.metadata.untold = self.metadata.untold, {}
        for name in sorted(untold.keys() & set(topics)):
            raise KafkaError(untold[name], _topic_error_text(name, untold[name]))

    def epoch_seen(self, partition: TopicPartition, epoch: int) -> None:
        """Note the leader epoch of a position or commit: the known leader may be older than that."""
        if self.metadata.epoch_seen(*partition, epoch, now_ms()):
            _log.warning("%s: leader epoch %d is newer than the metadata's; updating the metadata", partition, epoch)

    # ---- coordinators

    async def coordinator(self, kind: int, key: str, purpose: str = "coordinator") -> BrokerConnection:
        """A connection to the coordinator of this group, transactional id or share-group partition."""
        node = self._coordinators.get((kind, key))
        if node is None:
            connection = await self.any()
            version = connection.version_of(ApiKey.FIND_COORDINATOR)
            if version >= 4:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            else:
                request = FindCoordinatorRequest(key_type=kind, key=key)
            timeout_ms = self.settings.request_timeout_ms
            response = await connection.call(request, FindCoordinatorResponse, timeout_ms=timeout_ms, version=version)
            if version >= 4:
                coordinator = only(response.coordinators, f"the coordinator of {key}")
                check(coordinator.error_code, coordinator.error_message)
                node = ClusterNode(coordinator.node_id, coordinator.host, coordinator.port)
            else:
                check(response.error_code, response.error_message)
                node = ClusterNode(response.node_id, response.host, response.port)
            self.metadata.nodes.setdefault(node.id, node)
            self._coordinators[kind, key] = node
        try:
            return await self.address((node.host, node.port), purpose)
        except NotReachable:
            self.forget_coordinator(kind, key)
            raise

    def coordinator_id(self, kind: int, key: str) -> int | None:
        """The node last known as the coordinator; None if unknown."""
        node = self._coordinators.get((kind, key))
        return None if node is None else node.id

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Forget a coordinator that denied the role or does not answer: the next call looks it up again."""
        self._coordinators.pop((kind, key), None)

    # ---- retries

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int,
        on_error: Callable[[KafkaError | NotReachable], None] | None = None,
        backoff: Backoff | None = None,
    ) -> T:
        """Run `attempt` until it succeeds, fails with an error that is not retriable, or `timeout_ms` is over.

        After the timeout, the last error is raised. After an unreachable broker or a timeout, the next attempt (of this
        call or another) starts with fresh metadata.
        """
        deadline_ms = now_ms() + timeout_ms
        backoff = backoff or Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        last: KafkaError | NotReachable | None = None
        while True:
            try:
                async with asyncio.timeout(max(0, deadline_ms - now_ms()) / 1000):
                    if self.metadata.version and self.metadata.update_due_ms() <= now_ms():
                        await self.update()
                    return await attempt()
            except TimeoutError:
                self.metadata.request_update(now_ms())
                raise last or RequestTimedOut(f"the call did not finish within {timeout_ms} ms") from last
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
            except NotReachable as error:
                # The broker's partitions may have other leaders by now.
                self.metadata.request_update(now_ms())
                last = error
            if on_error is not None:
                on_error(last)
            pause_ms = backoff.next_ms()
            if now_ms() + pause_ms >= deadline_ms:
                raise last
            await asyncio.sleep(pause_ms / 1000)


def _topic_error_text(topic: str, code: ErrorCode) -> str:
    """The text of a topic's error in the metadata."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"there is no topic {topic}, or this client may not see it"
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return topic_fault(topic) or f"the brokers do not accept the topic name {topic}"
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"this client may not see topic {topic}"
    return f"topic {topic}"
