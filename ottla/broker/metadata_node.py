"""What brokers and controllers share: a node that takes part in the cluster's metadata quorum.

It owns the directory locks, the quorum, the listeners and their dispatch. `ottla.broker.node` is a node with the broker
role, `ottla.broker.controller_node` a node with only the controller role.

Rules:
- A node is single-threaded: everything here runs on its loop's thread.
- `open` goes through phases. A quorum of this node alone completes all of them before `open` returns, unless its logs
  take longer than the caller waits; otherwise the loop continues, and `on_ready` is called when the node serves.
- Each phase registers what it opens with `close`, which ends it in reverse order.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import field
from random import SystemRandom
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.controllers.controllers import Controllers
from ottla.broker.dispatch.dispatch import CONTROLLER_HANDLERS, HANDLERS, Dispatch
from ottla.broker.endpoint import Endpoint, advertise
from ottla.broker.limits.admission import Admission
from ottla.broker.limits.quota import Quotas
from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.broker.runtime import Runtime
from ottla.host.clock import HostClock
from ottla.host.disk import HostDisk
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.frozen import frozen
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.directory.directory import LockingDisk
from ottla.metadata.image import BROKER, Image
from ottla.net.inbound import Connection, Slot
from ottla.net.listener import Gate, ListeningSocket
from ottla.net.memory import RequestMemory
from ottla.net.peer import OutboundOptions
from ottla.settings.listener import Listener
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import check_served, is_of_many, notices

if TYPE_CHECKING:
    from ottla.broker.dispatch.principals import Principals
    from ottla.broker.guard.authorizer import Authorizer
    from ottla.broker.metadata.registration import LogDirectories
    from ottla.broker.node import BrokerNode
    from ottla.broker.node_security import NodeSecurity
    from ottla.broker.observe.endpoint import Observation
    from ottla.broker.partitions import clean_worker
    from ottla.net import outbound
    from ottla.net.authentications import Authentications
    from ottla.security.token_keys import TokenKeys
else:
    clean_worker = LazyModule("ottla.broker.partitions.clean_worker")
    outbound = LazyModule("ottla.net.outbound")

_log = logging.getLogger("ottla.broker")
_REGISTER_RETRY_SECONDS = 1.0
_PROGRESS_SECONDS = 5.0
_net_log = logging.getLogger("ottla.net")


def _threads(count: int = 2) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix="ottla-disk")


def _process(loop: asyncio.AbstractEventLoop, disk: Disk) -> clean_worker.CleanerWorker:
    return clean_worker.ProcessWorker(loop, disk)


def _dial(*arguments: Any, **options: Any) -> outbound.Outbound:
    return outbound.Outbound(*arguments, **options)


@frozen
class Ports:
    """A node's access to the outside world, besides its loop. The defaults are real; `ottla.sim` has simulated ones."""

    disk: LockingDisk = field(default_factory=HostDisk)
    clock: Clock = field(default_factory=HostClock)
    rng: Rng = field(default_factory=SystemRandom)
    #: Creates an executor for blocking work; the argument is the number of threads, by default two.
    pool: Callable[..., Executor] = _threads
    #: Creates a listener; takes the arguments of `ListeningSocket`.
    listener: Callable[..., ListeningSocket] = ListeningSocket
    #: A clock in seconds with which the node measures its own work, for request quotas and the request log.
    work_seconds: Callable[[], float] = perf_counter
    #: Creates the worker that compacts one log.
    clean_worker: Callable[[asyncio.AbstractEventLoop, Disk], clean_worker.CleanerWorker] = _process
    #: Creates a connection to another node; takes the arguments of `Outbound`.
    outbound: Callable[..., outbound.Outbound] = _dial


class MetadataNode(Runtime, ABC):
    """A node of any role. Its owner gives it a loop, calls `open`, and `close` at the end."""

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop, ports: Ports | None = None) -> None:
        self._ports = ports = ports or Ports()
        super().__init__(settings, loop, disk=ports.disk, clock=ports.clock, rng=ports.rng, pool=ports.pool())
        self._file_settings = settings
        #: Called once, when the node serves: before `open` returns unless the node waits for others.
        self.on_ready: Callable[[], None] = lambda: None
        #: Called during a long start with a line about its progress.
        self.on_progress: Callable[[str], None] = lambda line: _log.info("%s", line)
        #: Dispatch of requests on brokers' listeners, and on controllers' listeners.
        self.dispatch = Dispatch(self, HANDLERS, ports.work_seconds)
        self.controller_dispatch = Dispatch(self, CONTROLLER_HANDLERS, ports.work_seconds)
        self.quotas = Quotas.of(settings)
        #: Connection limits, counted separately for brokers' and controllers' listeners.
        self.admission = Admission(lambda: self.settings, self.clock.monotonic_ms)
        self.controller_admission = Admission(lambda: self.settings, self.clock.monotonic_ms)
        #: What incomplete requests may take of the memory.
        self._requests = RequestMemory(settings.queued_max_request_bytes)
        self.listeners: list[ListeningSocket] = []
        self.controller_listeners: list[ListeningSocket] = []
        #: The counts of each listener with TLS or SASL.
        self.authentications: dict[str, Authentications] = {}
        self.quorum: MetadataLog
        #: Access to the active controller, wherever it is.
        self.controllers = Controllers(loop, settings, self.rng, lambda: self.quorum, self.outbound_to_controllers)
        #: Decides what clients may do; None: everyone may do everything.
        self.authorizer: Authorizer | None = None
        #: TLS, and this node's login at other nodes; None if all listeners are PLAINTEXT.
        self.security: NodeSecurity | None = None
        #: The secrets of delegation tokens; None without delegation.token.secret.key.
        self.token_keys: TokenKeys | None = None
        if settings.delegation_token_secret_key:
            from ottla.security.token_keys import TokenKeys

            self.token_keys = TokenKeys(settings.delegation_token_secret_key)
        #: Metrics, health and readiness over HTTP; None without metrics.listener.
        self.observation: Observation | None = None
        self._slow_text: str | None = None
        self._wait_seconds: float | None = None
        #: True while the node serves.
        self.is_ready = False
        self._waiting: asyncio.TimerHandle | None = None
        #: True while this controller's registration is in flight.
        self._is_registering = False
        self._undo = ExitStack()
        self._endpoints: dict[str, Endpoint] = {}

    # ---- lifecycle

    def open(self, *, wait_seconds: float | None = None) -> None:
        """Bind the listeners, lock the directories and join the quorum. Raises OttlaError with a clear message.

        A node that is alone blocks for at most `wait_seconds` while its logs are opened (None: until they are open).
        """
        self._wait_seconds = wait_seconds
        check_served(self.settings)
        for notice in notices(self.settings):
            _log.warning("%s", notice)
        try:
            self._undo.callback(self.pool.shutdown)
            if self.settings.authorizer_class_name:
                from ottla.broker.guard.authorizer import Authorizer

                self.authorizer = Authorizer(self.settings)
            if any(protocol != "PLAINTEXT" for protocol in self.settings.protocols_in_use().values()):
                from ottla.broker.node_security import NodeSecurity

                self.security = NodeSecurity(self.loop, self._ports.pool, self.settings)
                self._undo.callback(self.security.close)
                self.security.start_logins(needed=is_of_many(self.settings))
            ports = self._bind()
            where = self.settings.plain_text("metrics.listener")
            if where is not None:
                self._observe(where)
            url = self.settings.plain_text("client.metrics.otlp.url")
            if url is not None and self.settings.is_broker:
                self._export_client_metrics(url)
            url = self.settings.plain_text("tracing.otlp.url")
            if url is not None and self.settings.is_broker:
                self._trace(url)
            self._log_slow(strict=True)
            directories = self._take_directories()
            settings = self.settings
            if any(each.port == 0 for each in settings.listeners):
                # The quorum, and those who describe it, learn where its controllers can be reached.
                settings = settings.with_ports(ports)
            self.quorum = MetadataLog.open(
                self.disk, settings, directories, self.clock, self.rng, self._dial_controller
            )
            self._undo.callback(self.quorum.close)
            if self.authorizer is not None:
                authorizer = self.authorizer
                authorizer.begin(self.quorum.decided)
                self.quorum.subscribe(lambda old, new: authorizer.follow(new))
            if self.observation is not None:
                self.observation.latency.watch(self.quorum, self.clock)
                if self.settings.is_controller:
                    self.observation.changes.watch(self.quorum)
            self.quorum.subscribe_leader(self.controllers.leader_changed)
            self.quorum.subscribe_leader(self._register_controller)
            self.quorum.subscribe(lambda old, new: self._register_controller())
            self.quorum.on_failure = lambda error: self.on_failure(f"cannot follow the metadata: {error}")
            self._begin()
            if not self.is_ready:
                self._waiting = self.loop.call_later(_PROGRESS_SECONDS, self._report_waiting)
        except BaseException:
            self._undo.close()
            raise

    @abstractmethod
    def _take_directories(self) -> LogDirectories:
        """Lock the log directories, and check that they belong to this node."""

    @abstractmethod
    def _begin(self) -> None:
        """Continue after joining the quorum: complete the next phases, or arrange for them."""

    def _serve_controllers(self) -> None:
        for listener in self.controller_listeners:
            listener.serve()

    def stop(self, done: Callable[[], None]) -> None:
        """Hand over what this node leads, then call `done`; `close` follows."""
        self.quorum.resign(done)

    def close(self) -> None:
        """Stop serving, do what a clean shutdown requires, and release the directories."""
        for listener in (*self.listeners, *self.controller_listeners):
            listener.close()
        if self.dispatch.log.slow is not None:
            self.dispatch.log.slow.close()
        self.controllers.close()
        if self._waiting is not None:
            self._waiting.cancel()
        with suppress(OSError):
            # Apply pending decisions while there are threads. A failing disk has already been reported to the node's
            # owner.
            self.quorum.finish()
        self.closed = True
        # Let running flushes finish before their logs are closed.
        self.pool.shutdown()
        self._undo.close()

    def _bind(self) -> dict[str, int]:
        """Bind the listeners; returns their ports by name."""
        ports = {}
        for each in self.settings.listeners:
            if each.name in self.settings.controller_listener_names:
                listener = self._listen(each, self.controller_dispatch, self.controller_admission.gate(each.name))
                self.controller_listeners.append(listener)
            else:
                listener = self._listen(each, self.dispatch, self.admission.gate(each.name))
                self.listeners.append(listener)
            ports[each.name] = listener.port
            if self.settings.is_broker is (listener in self.listeners):
                self._endpoints[each.name] = advertise(self.settings, each, listener.port)
        return ports

    def _listen(self, at: Listener, dispatch: Dispatch, gate: Gate) -> ListeningSocket:
        on_frame: Callable[[Connection, memoryview, Slot], None] = dispatch.on_frame
        frame_bytes_max = self.settings.socket_request_max_bytes
        principals = self._principals(at, dispatch)
        if principals is not None:
            on_frame = principals.on_frame
        authentications = None
        if at.security_protocol != "PLAINTEXT":
            from ottla.net.authentications import Authentications

            authentications = self.authentications[at.name] = Authentications()
        if at.security_protocol.startswith("SASL"):
            from ottla.broker.dispatch.sign_in import SignIns

            image, tokens = lambda: self.quorum.image, self.token_keys
            sign_ins = SignIns(self, image, tokens, dispatch, at, principals, authentications)
            self._undo.callback(sign_ins.close)
            on_frame = sign_ins.on_frame
            frame_bytes_max = min(frame_bytes_max, self.settings.sasl_server_max_receive_size)
        more = {}
        if self.security is not None and authentications is not None:
            more = self.security.connection_of(at.name, authentications)
        listener = self._ports.listener(
            at.name,
            self.loop,
            on_frame,
            self._connection_closed,
            frame_bytes_max=frame_bytes_max,
            idle_ms_max=self.settings.connections_max_idle_ms,
            gate=gate,
            requests=self._requests,
            **more,
        )
        listener.bind(at.host, at.port)
        self._undo.callback(listener.close)
        return listener

    def _principals(self, at: Listener, dispatch: Dispatch) -> Principals | None:
        """The listener's principals by a plug-in; None: Kafka's own. OttlaError if there is no such plug-in."""
        setting = ServerSettings.principal_builder_class
        name = self.settings.for_listener(at.name, setting.name)
        if name == setting.default:
            return None
        from ottla.broker.dispatch.principals import Principals
        from ottla.broker.guard.plugin import PRINCIPAL_BUILDERS, load

        plugin = load(PRINCIPAL_BUILDERS, setting.name, name, self.settings.file_texts())
        return Principals(plugin, dispatch, at)

    def _observe(self, where: str) -> None:
        """Serve metrics, health and readiness from now on, and count requests."""
        from ottla.broker.observe.endpoint import Observation

        self.observation = observation = Observation(self, where, self._ports.work_seconds)
        self._undo.callback(observation.close)
        self.dispatch.count_with(observation.requests, has_topics=True)
        self.controller_dispatch.count_with(observation.requests, has_topics=False)

    def _export_client_metrics(self, url: str) -> None:
        """Also send clients' metrics to an OTLP receiver. OttlaError for an invalid URL."""
        from ottla.broker.observe.otlp_export import OtlpExport

        export = OtlpExport(url)
        self._undo.callback(export.close)
        cast("BrokerNode", self).telemetry.export_to(export.take)
        if self.observation is not None:
            self.observation.more_lines.append(export.lines)

    def _trace(self, url: str) -> None:
        """Send spans of traced records to an OTLP receiver. OttlaError for an invalid URL."""
        from ottla.broker.observe.spans import Spans

        def resource() -> dict[str, str]:
            return {
                "service.name": "ottla",
                "service.instance.id": str(self.node_id),
                "kafka.cluster.id": self.cluster_id,
            }

        spans = Spans(url, resource, self.rng.randbytes)
        self._undo.callback(spans.close)
        self.dispatch.trace(spans)
        if self.observation is not None:
            self.observation.more_lines.append(spans.lines)

    def _log_slow(self, *, strict: bool = False) -> None:
        """Log slow requests as the settings say. `strict`: raise OttlaError for an invalid value."""
        text = self.settings.plain_text("slow.request.log.ms")
        if text == self._slow_text:
            return
        from ottla.broker.observe.slow import SlowRequests, parse

        try:
            over_ms = parse(text)
        except OttlaError as error:
            if strict:
                raise
            return _log.warning("%s; the previous value stays in force", error)
        self._slow_text = text
        if self.dispatch.log.slow is not None:
            self.dispatch.log.slow.close()
        slow = None if over_ms is None else SlowRequests(self.loop, over_ms)
        self.dispatch.log_slow(slow)
        self.controller_dispatch.log_slow(slow)

    def _register_controller(self) -> None:
        """Register this controller's incarnation with the active controller (a leader registers itself)."""
        quorum = self.quorum
        if self._is_registering or self.closed or quorum.leader is None or not quorum.is_controller_unregistered:
            return
        self._is_registering = True

        def answered(response: object) -> None:
            self._is_registering = False
            if isinstance(response, KafkaError):
                _log.warning("cannot register this controller: %s; will retry", response)
                self.loop.call_later(_REGISTER_RETRY_SECONDS, self._register_controller)

        self.controllers.ask(quorum.controller_request, answered)

    def _ready(self) -> None:
        """End the last phase of the start."""
        self.is_ready = True
        if self._waiting is not None:
            self._waiting.cancel()
        self.on_ready()

    def _report_waiting(self) -> None:
        """Report at intervals why this node does not serve yet."""
        why = self.why_waiting()
        if why:
            self.on_progress(f"node {self.node_id} waits for the controllers: {why}")
        self._waiting = self.loop.call_later(_PROGRESS_SECONDS, self._report_waiting)

    @property
    def progress(self) -> str:
        """The progress of opening the logs; "" when they are open."""
        return ""

    def why_waiting(self) -> str:
        """Why this node does not serve yet; "" if progress lines already tell."""
        return self.quorum.trouble or "they have not unfenced this node yet"

    def _dial_controller(self, host: str, port: int) -> outbound.Outbound:
        settings = self.settings
        options = OutboundOptions(
            backoff_ms=settings.controller_quorum_retry_backoff_ms,
            backoff_max_ms=settings.controller_quorum_retry_backoff_ms,
            setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
        )
        return self.outbound_to_controllers(
            self.loop, host, port, client_id=f"raft-client-{self.node_id}", rng=self.rng, options=options
        )

    def outbound_to(self, listener: str, *arguments: Any, **options: Any) -> outbound.Outbound:
        """A connection to another node's listener of this name; takes the arguments of `Outbound`."""
        if self.security is not None and self.settings.protocols[listener] != "PLAINTEXT":
            return self.security.outbound(listener, *arguments, **options)
        return self._ports.outbound(*arguments, **options)

    def outbound_to_controllers(self, *arguments: Any, **options: Any) -> outbound.Outbound:
        """A connection to a controller's listener."""
        return self.outbound_to(self.settings.controller_listener_names[0], *arguments, **options)

    def _connection_closed(self, connection: Connection, why: str) -> None:
        _net_log.debug("connection of %s:%d closed: %s", *connection.peer, why)

    # ---- access

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """The cluster's id, from the log directories."""

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        """Feature -> (lowest, highest) level that this node supports."""
        return self.quorum.supported_features

    @property
    def finalized_features(self) -> dict[str, int]:
        """Feature -> the level that the cluster has finalized; kraft.version is the quorum's own (KIP-853)."""
        kraft_version = self.quorum.membership.kraft_version
        return {**self.image.features, "kraft.version": kraft_version}

    @property
    def failed_directories(self) -> list[str]:
        """Log directories that failed while the node ran."""
        return []

    def dispatch_of(self, listener_name: str) -> Dispatch:
        """The dispatch for a listener's requests."""
        is_controllers = listener_name in self.settings.controller_listener_names
        return self.controller_dispatch if is_controllers else self.dispatch

    def bound(self) -> list[Endpoint]:
        """The addresses for clients, or on a controller-only node for other nodes."""
        return list(self._endpoints.values())

    def _follow_limits(self, old: Image, new: Image) -> None:
        """Apply a change of quotas, or of the connection limits in brokers' configs."""
        if new.quotas is not old.quotas:
            self.quotas.follow(new)
        for each in (self.admission, self.controller_admission):
            if new.quotas is not old.quotas:
                each.follow(new)
            if new.changed_configs(old, BROKER):
                each.settings_changed()

    def with_dynamic(self, own: Mapping[str, str], everyones: Mapping[str, str]) -> ServerSettings:
        """This node's settings with these dynamic configs. OttlaError if they do not fit together."""
        return self._file_settings.with_dynamic(own, everyones)

    def _follow_settings(self, old: Image, new: Image) -> bool:
        """Apply changed configs of brokers; return True if there are any."""
        if new.changed_configs(old, BROKER):
            self._take_settings(new)
            return True
        if self.security is not None and new.wrote_configs(old, BROKER, str(self.node_id)):
            # A file that was replaced under its old name changes no config (KAFKA-14136).
            self.security.follow(self.settings, free=not self.is_ready)
        return False

    def _take_settings(self, image: Image) -> None:
        self.image = image
        own, everyones = image.config(BROKER, str(self.node_id)), image.config(BROKER, "")
        self.settings, misfits = self._file_settings.with_fitting(own, everyones)
        for misfit in misfits:
            # The metadata must be followed all the same, and a node that starts must be able to.
            _log.error("a dynamic config has no effect on this node: %s", misfit)
        for name in ServerSettings.only_in_file(own):
            # Apache Kafka's controllers accept it.
            _log.warning("%s is set dynamically, which has no effect here: set it in the node's file", name)
        self._log_slow()
        if self.security is not None:
            self.security.follow(self.settings, free=not self.is_ready)
