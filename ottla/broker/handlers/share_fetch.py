"""ShareFetch (key 78): acquire and read records of a share group, and acknowledge earlier ones (KIP-932).

Rules:
- A member reads the partitions in its session (`ottla.share.session`). Epoch 0 begins a session; -1 ends it and reads
  nothing.
- The request's acknowledgements are processed before records are acquired, and stored before the response leaves.
- With less than `min_bytes` to read it waits up to `max_wait_ms`; an append or newly available records wake it. A
  ShareFetch or ShareAcknowledge behind it on the same connection ends the wait at once.
- The response has whole batches of the log around the acquired records; `acquired_records` lists the offsets that
  belong to the member.
- A request that renews locks (`is_renew_ack`) does nothing else.

KIPs: 932, 951 leader hints, 1206 a strict limit of acquired records, 1222 renewal.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.leader_hint import hint_to_share_member
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.group_protocol import SHARE, check_enabled
from ottla.broker.handlers.share_acknowledge import PARTITIONS_PER_STEP, Outcome, acknowledge, check_member
from ottla.broker.share.partition import ShareLeader
from ottla.broker.share.read import visible_batches
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.log.lookup import is_cut_off
from ottla.net.part import NO_REQUEST
from ottla.replica.partition import Fetched
from ottla.share.partition import AcquireRequest
from ottla.share.session import FINAL_EPOCH, INITIAL_EPOCH, Key, ShareSession
from ottla.share.state import SharePartitionKey
from ottla.wire.api import ApiKey
from ottla.wire.api.share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.compile import deferred

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_STRICT_MODE = 1
_RENEW_FROM = 2
#: Requests that show that the member no longer waits for the fetch before them; NO_REQUEST: it disconnected.
_ENDS_WAIT = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, NO_REQUEST})
#: How often a fetch may skip invisible records before it gives the loop to others.
_PASSES_MAX = 64


@handles(ApiKey.SHARE_FETCH)
def share_fetch(call: Call, request: ShareFetchRequest) -> Reply:
    """Acknowledge, then acquire; wait for records if there are too few and the client allows it."""
    check_enabled(call.node, SHARE)
    return in_turns(call.connection, _share_fetch(call, request))


def _share_fetch(call: Call, request: ShareFetchRequest) -> Generator[None, None, Later]:
    owner = check_member(request)
    renews = call.version >= _RENEW_FROM and request.is_renew_ack
    if renews:
        _check_renewal(request)
    says = any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions)
    later = Later()
    try:
        session = _session(call, request, owner, says)
    except KafkaError as error:
        if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        _refuse_later(call, later, error, request.max_wait_ms)
        return later
    answer = _ShareFetchAnswer(call, request, session, later)
    if says:
        yield from acknowledge(call, owner, request.topics, answer.acknowledged, renews=renews)
    else:
        answer.acknowledged({})
    if renews or request.share_session_epoch == FINAL_EPOCH:
        answer.fetched([])
    else:
        yield from ParkedShareFetch(call, request, session, answer).begin(later)
    return later


def _refuse_later(call: Call, later: Later, limit: KafkaError, wait_ms: int) -> None:
    """Delay the error: a member that got it at once would retry at once. The end of the connection ends the delay."""
    timer = call.node.loop.call_later(wait_ms / 1000, lambda: later.resolve(limit))

    def superseded(key: int) -> None:
        if key == NO_REQUEST:
            timer.cancel()
            later.resolve(limit)

    later.superseded = superseded


def _check_renewal(request: ShareFetchRequest) -> None:
    wrong = [
        f"{name} must be set to 0, "
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait_ms),
        )
        if value
    ]
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{''.join(wrong)}if isRenewAck is true.")


def _session(call: Call, request: ShareFetchRequest, owner: tuple[str, str], says: bool) -> ShareSession:
    sessions = call.node.shares.sessions
    wanted = [
        (Uuid(topic.topic_id), partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if request.share_session_epoch == FINAL_EPOCH:
        return sessions.find(owner)
    if request.share_session_epoch == INITIAL_EPOCH:
        if says:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        sessions_max = call.node.settings.group_share_max_share_sessions
        return sessions.begin(owner, wanted, call.connection, sessions_max)
    forgotten = [
        (Uuid(topic.topic_id), partition) for topic in request.forgotten_topics_data for partition in topic.partitions
    ]
    return sessions.resume(owner, request.share_session_epoch, wanted, forgotten)


class _ShareFetchAnswer:
    """The two halves of a request, which is answered when both are complete."""

    def __init__(self, call: Call, request: ShareFetchRequest, session: ShareSession, later: Later) -> None:
        self._call = call
        self._request = request
        self._session = session
        self._later = later
        self._outcomes: dict[Key, Outcome] | None = None
        self._found: list[tuple[Key, PartitionData]] | None = None

    def acknowledged(self, outcomes: dict[Key, Outcome]) -> None:
        """Take the outcomes of the acknowledgements."""
        self._outcomes = outcomes
        self._answer()

    def fetched(self, results: list[tuple[Key, PartitionData]]) -> None:
        """Take the acquired records and the errors."""
        self._found = results
        self._answer()

    def _answer(self) -> None:
        if self._outcomes is None or self._found is None or self._later.resolved:
            return
        shares = self._call.node.shares
        if self._request.share_session_epoch == FINAL_EPOCH:
            shares.end_session(self._session)
        parts = dict(self._found)
        for key, outcome in self._outcomes.items():
            data = parts.setdefault(key, PartitionData(partition_index=key[1], records=b""))
            if outcome is not None:
                data.acknowledge_error_code, data.acknowledge_error_message = outcome.code, outcome.message or None
        topics: dict[Uuid, list[PartitionData]] = {}
        for (topic_id, _), data in parts.items():
            topics.setdefault(topic_id, []).append(data)
        settings = shares.settings_of(self._session.owner[0])
        response = ShareFetchResponse(
            throttle_time_ms=self._throttle_ms(parts.values()),
            acquisition_lock_timeout_ms=settings.share_record_lock_duration_ms,
            responses=deferred(
                len(topics),
                lambda: (
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ),
            ),
        )
        hint_to_share_member(self._call, response, NodeEndpoint, parts.items())
        self._later.resolve(response)

    def _throttle_ms(self, parts: Iterable[PartitionData]) -> int:
        """How long a member that exceeds its quota must wait."""
        node, call = self._call.node, self._call
        if not node.quotas.active:
            return 0
        size = sum(len(part.records or b"") for part in parts)
        return node.quotas.shared(call.user, call.client_id, size, node.clock.monotonic_ms())


class ParkedShareFetch:
    """The fetch of one request: tried at once, and retried on appends and released records while it waits."""

    def __init__(
        self, call: Call, request: ShareFetchRequest, session: ShareSession, answer: _ShareFetchAnswer
    ) -> None:
        self.node: BrokerNode = call.node
        self._call = call
        self._request = request
        self._session = session
        self._answer_parts = answer
        self._group_id, self._member_id = session.owner
        self._bytes_max = min(request.max_bytes, self.node.settings.fetch_max_bytes)
        self._strict = request.share_acquire_mode == _STRICT_MODE
        #: A fetch of no records is answered at once, with errors alone.
        self._wants = request.max_records > 0 and self._bytes_max > 0
        #: A session's first response names every readable partition; later ones only partitions with news.
        self._names_all = self._wants and request.share_session_epoch == INITIAL_EPOCH
        self._timer: TimerHandle | None = None
        self._is_over = False
        self._is_trying = False
        self._waiting = False
        #: The share partitions that it reads; one that failed to load stays here with its error.
        self._leaders: dict[Key, ShareLeader] = {}
        #: The session's partitions that are led here, and those that were not when the request came.
        self._keys: list[Key] = []
        self._refused: list[tuple[Key, PartitionData]] = []

    def begin(self, later: Later) -> Generator[None, None, None]:
        """Look for the partitions in steps; then answer if there are records, or if there is no time to wait."""
        for number, key in enumerate(list(self._session.partitions), 1):
            try:
                self._leader(key)
                self._keys.append(key)
            except KafkaError as error:
                self._refused.append((key, _failed(key[1], error)))
            if not number % PARTITIONS_PER_STEP:
                yield
                if not self._is_open:
                    break
        if not self._session.partitions or not self._is_open:
            self._answer_parts.fetched([])
            return
        results = self._attempt(final=self._request.max_wait_ms <= 0 or not self._wants)
        if results is not None:
            self._answer_parts.fetched(results)
            return
        later.superseded = self._supersede
        self._waiting = True
        for leader in self._leaders.values():
            self._wait_at(leader)
        self._timer = self.node.loop.call_later(self._request.max_wait_ms / 1000, self._finish)

    @property
    def _is_open(self) -> bool:
        """Does the member still have this session? Without it, a share partition or acquired records had no owner."""
        return self.node.shares.sessions.holds(self._session)

    # -- trying

    def _attempt(self, *, final: bool) -> list[tuple[Key, PartitionData]] | None:
        """The acquired records and the errors; None if not all have failed and it is worth waiting for more.

        Raises nothing: a waiting fetch would never be answered, and the records of other partitions stay acquired.
        """
        results: list[tuple[Key, PartitionData]] = [*self._refused]
        ready: list[tuple[Key, ShareLeader]] = []
        for key in self._keys:
            try:
                leader = self._leader(key)
                has_room = leader.ready().has_room
            except KafkaError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    results.append((key, _failed(key[1], error)))
                continue
            if has_room and self._wants:
                ready.append((key, leader))
        reads = []
        size, urgent = 0, final
        for key, leader in ready:
            fetched = self._read(leader, len(ready))
            if fetched is not None and fetched.records is not None:
                reads.append((key, leader, fetched))
                size += len(fetched.records)
                end_offset = fetched.last_stable_offset if leader.isolation_level else fetched.high_watermark
                urgent = urgent or is_cut_off(leader.partition.log, leader.ready().next_fetch_offset, end_offset)
        all_failed = len(results) == len(self._keys) + len(self._refused)
        if not all_failed and not urgent and size < min(self._request.min_bytes, self._bytes_max):
            return None
        left = self._request.max_records
        for key, leader, fetched in reads:
            try:
                data = self._take(leader, fetched, len(ready), left) if left > 0 else None
            except KafkaError as error:
                data = _failed(key[1], error)
            if data is not None:
                left -= sum(
                    acquired_record.last_offset - acquired_record.first_offset + 1
                    for acquired_record in data.acquired_records
                )
                self._session.move_to_end(key)
                results.append((key, data))
        if self._names_all:
            reported = {key for key, _ in results}
            results += [
                (key, PartitionData(partition_index=key[1], records=b"")) for key, _ in ready if key not in reported
            ]
        at_once = bool(ready) and self._request.min_bytes <= 0
        return results if results or final or at_once else None

    def _leader(self, key: Key) -> ShareLeader:
        topic_id, index = key
        name = self.node.topic_name(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self.node.authorizer is not None:
            self.node.authorizer.check_read(self._call, name)
        partition = self.node.leader_of(name, index)
        known = self._leaders.get(key)
        if known is not None and known.error is not None:
            return known
        leader = self._leaders[key] = self.node.shares.lead(
            SharePartitionKey(self._group_id, topic_id, index), partition
        )
        if self._waiting and leader is not known:
            self._wait_at(leader)
        return leader

    def _read(self, leader: ShareLeader, readers: int) -> Fetched | None:
        """The records at the share partition's next fetch offset; None if there are none."""
        bytes_max = max(1, self._bytes_max // readers)
        try:
            offset = leader.ready().next_fetch_offset
            with self.node.log_dirs.guarding(leader.partition.log):
                fetched = leader.partition.read(offset, bytes_max, leader.isolation_level, min_one_batch=True)
        except KafkaError:
            # The start offset was set beyond the log end. The log may grow up to it, or the offset may be reset.
            return None
        return fetched if fetched.records is not None else None

    def _take(
        self, leader: ShareLeader, fetched: Fetched | None, readers: int, records_max: int
    ) -> PartitionData | None:
        """Acquire records of a share partition; None if there are none. KafkaError if they cannot be read."""
        asked = AcquireRequest(records_max, self._request.batch_size, self._strict)
        for _ in range(_PASSES_MAX):
            if fetched is None or fetched.records is None:
                return None
            with self.node.log_dirs.guarding(leader.partition.log):
                data = fetched.records.bytes()
            batches = visible_batches(data, fetched.aborted)
            before = leader.ready().next_fetch_offset
            acquired, change = leader.ready().acquire(
                self._member_id, [each for _, each in batches], asked, self.node.clock.monotonic_ms()
            )
            leader.store(change)
            if acquired:
                first, last = acquired[0].first_offset, acquired[-1].last_offset
                inside = [at for at, each in batches if each.last_offset >= first and each.first_offset <= last]
                ends = [at for at, each in batches if each.first_offset > last]
                end = ends[0] if ends else len(data)
                return PartitionData(
                    partition_index=leader.key.partition,
                    records=data[inside[0] : end],
                    acquired_records=[
                        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in acquired
                    ],
                )
            if leader.ready().next_fetch_offset == before:
                return None
            fetched = self._read(leader, readers)
        return None

    # -- waiting

    def _wait_at(self, leader: ShareLeader) -> None:
        leader.partition.waiting[self._try] = None
        leader.waiting[self._try] = None

    def _try(self) -> None:
        self._retry(final=False)

    def _supersede(self, key: int) -> None:
        if key in _ENDS_WAIT:
            self._finish()

    def _finish(self) -> None:
        self._retry(final=True)

    def _retry(self, *, final: bool) -> None:
        if self._is_over or self._is_trying:
            # The attempt may wake all waiters, including this one.
            return
        if not self._is_open:
            # The connection is closed, or the member has a new session: acquired records would have no owner.
            self._resolve([])
            return
        self._is_trying = True
        results = self._attempt(final=final)
        self._is_trying = False
        if results is not None:
            self._resolve(results)

    def _resolve(self, results: list[tuple[Key, PartitionData]]) -> None:
        assert self._timer is not None
        self._is_over = True
        self._timer.cancel()
        # A timer that has run would keep this object alive through its callback.
        self._timer = None
        for leader in self._leaders.values():
            leader.partition.waiting.pop(self._try, None)
            leader.waiting.pop(self._try, None)
        self._answer_parts.fetched(results)


def _failed(index: int, error: KafkaError) -> PartitionData:
    return PartitionData(partition_index=index, error_code=error.code, error_message=error.message or None, records=b"")
