"""ShareAcknowledge and the acknowledgements of ShareFetch: which are consistent, and what each partition is told."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.share_acknowledge import share_acknowledge
from ottla.broker.handlers.share_fetch import share_fetch
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.net.part import NO_REQUEST
from ottla.share.session import FINAL_EPOCH, INITIAL_EPOCH
from ottla.wire.api import ApiKey
from ottla.wire.api import share_acknowledge as ack
from ottla.wire.api import share_fetch as fetch

_ID, _OTHER = Uuid(b"t" * 16), Uuid(b"u" * 16)
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


class _Node:
    """A node of topic "t", whose sessions and share partitions the test answers for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for each in ("share_acknowledge", "share_fetch"):
            monkeypatch.setattr(f"ottla.broker.handlers.{each}.check_enabled", lambda node, kind: None)
        self.told: list[Any] = []
        self.waiting: list[Any] = []
        self.timers: list[Any] = []
        self.session: Any = SimpleNamespace(owner=("g", "m"), partitions={})
        self.limit: KafkaError | None = None
        leader = SimpleNamespace(acknowledge=self._acknowledge)
        shares = SimpleNamespace(
            sessions=SimpleNamespace(
                find=self._session("find"), resume=self._session("resume"), begin=self._session("begin")
            ),
            find=lambda key: leader if key.partition == 0 else None,
            end_session=lambda session: self.told.append(("end", session is self.session)),
            settings_of=self._settings_of,
        )
        self.quotas = SimpleNamespace(active=False, shared=self._shared)
        node = SimpleNamespace(
            shares=shares,
            topic_name={_ID: "t"}.get,
            authorizer=None,
            image=SimpleNamespace(topics={}),
            quotas=self.quotas,
            loop=SimpleNamespace(call_later=self._call_later),
            clock=SimpleNamespace(monotonic_ms=lambda: 55),
            settings=SimpleNamespace(group_share_max_share_sessions=3, fetch_max_bytes=1 << 20),
            log_dirs=SimpleNamespace(guarding=lambda log: nullcontext()),
        )
        self.call: Any = SimpleNamespace(node=node, version=2, connection="connection", user="ann", client_id="c")

    def _call_later(self, seconds: float, do: Any) -> Any:
        timer = seconds, do
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def _settings_of(self, group: str) -> Any:
        assert group == "g"
        return SimpleNamespace(share_record_lock_duration_ms=777)

    def _shared(self, *given: Any) -> int:
        self.told.append(given)
        return 12

    def _session(self, what: str) -> Any:
        def found(*given: Any) -> Any:
            self.told.append((what, *given))
            if self.limit is not None:
                raise self.limit
            return self.session

        return found

    def _acknowledge(self, member: str, acknowledgements: Any, done: Any) -> None:
        self.told.append((member, [tuple(each) for each in acknowledgements]))
        self.waiting.append(done)

    def acknowledge(
        self, *batches: tuple[int, int, list[int]], version: int = 2, renews: bool = False, epoch: int = 1
    ) -> Any:
        """Acknowledge in partition 0; the reply."""
        self.call.version = version
        part = ack.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                ack.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in batches
            ],
        )
        return share_acknowledge(self.call, _request(part, epoch=epoch, is_renew_ack=renews))


def _request(*parts: Any, epoch: int = 1, topic_id: Uuid = _ID, **more: Any) -> ack.ShareAcknowledgeRequest:
    topics = [ack.AcknowledgeTopic(topic_id=topic_id, partitions=list(parts))]
    return ack.ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=epoch, topics=topics, **more)


def _codes(reply: Any) -> list[tuple[int, int, str | None]]:
    (topic,) = reply.value.responses
    return [(each.partition_index, each.error_code, each.error_message) for each in topic.partitions]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> _Node:
    return _Node(monkeypatch)


@pytest.mark.parametrize(
    ("batches", "version", "renews", "valid"),
    [
        ([(3, 3, [1])], 1, False, True),
        ([(3, 5, [1])], 1, False, True),
        ([(3, 5, [0, 1, 2])], 1, False, True),
        ([(3, 5, [3])], 1, False, True),
        ([(3, 5, [1, 2])], 1, False, False),
        ([(3, 5, [1, 2, 3, 1])], 1, False, False),
        ([(3, 5, [])], 1, False, False),
        ([(5, 3, [1])], 1, False, False),
        ([(3, 2, [1])], 1, False, False),
        ([(3, 5, [-1])], 1, False, False),
        ([(3, 5, [4])], 1, True, False),
        ([(3, 5, [4])], 2, False, False),
        ([(3, 5, [4])], 2, True, True),
        ([(3, 5, [1, 4, 2])], 2, True, True),
        ([(3, 5, [5])], 2, True, False),
        ([(3, 5, [1]), (6, 7, [2])], 1, False, True),
        ([(3, 5, [1]), (5, 7, [2])], 1, False, True),
        ([(3, 5, [1]), (4, 7, [2])], 1, False, False),
        ([(6, 7, [1]), (3, 5, [2])], 1, False, False),
        ([(0, 0, [1])], 1, False, True),
        ([(-1, -1, [1])], 1, False, True),
        ([(-2, -2, [1])], 1, False, False),
    ],
)
def test_acknowledgements_are_in_order_and_of_known_kinds(
    node: _Node, batches: Any, version: int, renews: bool, valid: bool
) -> None:
    reply = node.acknowledge(*batches, version=version, renews=renews)
    if valid:
        assert node.told == [("resume", ("g", "m"), 1), ("m", batches)] and not reply.resolved
        node.waiting[0](None)
        assert _codes(reply) == [(0, NONE, None)]
        assert reply.value.acquisition_lock_timeout_ms == 777
    else:
        assert _codes(reply) == [(0, INVALID, None)] and node.waiting == []


def test_an_error_of_one_partition_is_told_beside_the_others(node: _Node) -> None:
    batch = ack.AcknowledgementBatch(first_offset=1, last_offset=1, acknowledge_types=[1])
    parts = [ack.AcknowledgePartition(partition_index=at, acknowledgement_batches=[batch]) for at in (0, 1)]
    reply: Any = share_acknowledge(node.call, _request(*parts))
    assert not reply.resolved, "partition 0 is being stored"
    node.waiting[0](KafkaError(ErrorCode.INVALID_RECORD_STATE, "not acquired"))
    assert _codes(reply) == [
        (0, ErrorCode.INVALID_RECORD_STATE, "not acquired"),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]
    reply = share_acknowledge(node.call, _request(parts[0], topic_id=_OTHER))
    assert _codes(reply) == [(0, ErrorCode.UNKNOWN_TOPIC_ID, None)]
    backwards = ack.AcknowledgementBatch(first_offset=1, last_offset=0, acknowledge_types=[1])
    wrong = ack.AcknowledgePartition(partition_index=0, acknowledgement_batches=[backwards])
    reply = share_acknowledge(node.call, _request(wrong, topic_id=_OTHER))
    assert _codes(reply) == [(0, ErrorCode.UNKNOWN_TOPIC_ID, None)], "the topic is looked up first"
    # Nothing is stored for a partition without acknowledgements.
    reply = share_acknowledge(node.call, _request(ack.AcknowledgePartition(partition_index=0)))
    assert _codes(reply) == [(0, NONE, None)] and len(node.waiting) == 1

    def denies(call: Any, name: str) -> None:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    node.call.node.authorizer = SimpleNamespace(check_read=denies)
    assert _codes(share_acknowledge(node.call, _request(parts[0]))) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_partition_that_is_named_twice_fails_if_either_part_does(node: _Node, order: tuple[int, int]) -> None:
    parts = [
        ack.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                ack.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
            ],
        )
        for offset in (1, 2)
    ]
    reply: Any = share_acknowledge(node.call, _request(*parts))
    outcomes = (None, KafkaError(ErrorCode.INVALID_RECORD_STATE))
    for at in order:
        node.waiting[at](outcomes[at])
    assert _codes(reply) == [(0, ErrorCode.INVALID_RECORD_STATE, None)]


def test_a_last_request_ends_its_session_after_it_is_stored(node: _Node) -> None:
    with pytest.raises(KafkaError, match="INVALID_SHARE_SESSION_EPOCH"):
        node.acknowledge((1, 1, [1]), epoch=INITIAL_EPOCH)
    assert node.told == []
    reply = node.acknowledge((1, 1, [1]), epoch=FINAL_EPOCH)
    assert node.told == [("find", ("g", "m")), ("m", [(1, 1, [1])])]
    node.waiting[0](None)
    assert node.told[2:] == [("end", True)] and _codes(reply) == [(0, NONE, None)]


@pytest.mark.parametrize(
    ("group", "member", "words"),
    [
        (None, "m", "Invalid group id in the request."),
        ("g", None, "Invalid member id in the request."),
        ("g", "", "Invalid member id in the request."),
        ("g", "m" * 37, "Invalid member id in the request."),
        ("g", "m" * 36, None),
    ],
)
def test_a_request_names_its_group_and_member(node: _Node, group: Any, member: Any, words: str | None) -> None:
    for handler, request in (
        (share_acknowledge, ack.ShareAcknowledgeRequest(group_id=group, member_id=member, share_session_epoch=1)),
        (share_fetch, fetch.ShareFetchRequest(group_id=group, member_id=member, share_session_epoch=FINAL_EPOCH)),
    ):
        if words is None:
            assert handler(node.call, request).resolved  # type: ignore[arg-type]
            continue
        with pytest.raises(KafkaError) as refused:
            handler(node.call, request)  # type: ignore[arg-type]
        assert (refused.value.code, refused.value.message) == (INVALID, words)


# ---- with a fetch


def _fetch(*batches: tuple[int, int, list[int]], epoch: int = 1, **more: Any) -> fetch.ShareFetchRequest:
    part = fetch.FetchPartition(
        partition_index=0,
        acknowledgement_batches=[
            fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ],
    )
    topics = [fetch.FetchTopic(topic_id=_ID, partitions=[part])]
    return fetch.ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=epoch, topics=topics, **more)


_LIMITS = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_bytes": 1}, "maxBytes must be set to 0, if isRenewAck is true."),
        ({"min_bytes": 1}, "minBytes must be set to 0, if isRenewAck is true."),
        ({"max_records": 1}, "maxRecords must be set to 0, if isRenewAck is true."),
        ({"max_wait_ms": 1}, "maxWaitMs must be set to 0, if isRenewAck is true."),
        (
            {"max_bytes": 1, "max_wait_ms": 1},
            "maxBytes must be set to 0, maxWaitMs must be set to 0, if isRenewAck is true.",
        ),
    ],
)
def test_a_renewal_fetches_nothing(node: _Node, more: dict[str, int], words: str) -> None:
    request = _fetch((1, 1, [4]), is_renew_ack=True, **_LIMITS | more)
    with pytest.raises(KafkaError) as refused:
        share_fetch(node.call, request)
    assert (refused.value.code, refused.value.message, node.told) == (INVALID, words, [])
    # Version 1 knows no renewals, and none of their rules.
    node.call.version = 1
    reply: Any = share_fetch(node.call, request)
    assert reply.value.responses[0].partitions[0].acknowledge_error_code == INVALID


def test_a_renewal_is_answered_when_it_is_stored(node: _Node) -> None:
    reply: Any = share_fetch(node.call, _fetch((1, 1, [4]), is_renew_ack=True, **_LIMITS))
    assert not reply.resolved
    node.waiting[0](KafkaError(ErrorCode.INVALID_RECORD_STATE, "too late"))
    (part,) = reply.value.responses[0].partitions
    assert (part.error_code, part.acknowledge_error_code, part.acknowledge_error_message) == (
        NONE,
        ErrorCode.INVALID_RECORD_STATE,
        "too late",
    )
    assert reply.value.acquisition_lock_timeout_ms == 777


def test_the_last_fetch_of_a_session_acknowledges_and_ends_it(node: _Node) -> None:
    reply: Any = share_fetch(node.call, _fetch((1, 1, [1]), epoch=FINAL_EPOCH, max_records=5, max_bytes=5))
    assert not reply.resolved and node.told[0] == ("find", ("g", "m"))
    node.waiting[0](None)
    assert node.told[-1] == ("end", True) and reply.resolved


def test_the_first_fetch_of_a_session_acknowledges_nothing(node: _Node) -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        share_fetch(node.call, _fetch((1, 1, [1]), epoch=INITIAL_EPOCH))
    assert node.told == []
    reply: Any = share_fetch(node.call, _fetch(epoch=INITIAL_EPOCH))
    assert node.told == [("begin", ("g", "m"), [(_ID, 0)], "connection", 3)] and reply.resolved
    assert reply.value.responses == []


def test_a_session_goes_on_with_what_is_named_and_without_what_is_forgotten(node: _Node) -> None:
    forgotten = [fetch.ForgottenTopic(topic_id=_OTHER, partitions=[4, 5])]
    share_fetch(node.call, _fetch(epoch=7, forgotten_topics_data=forgotten))
    assert node.told == [("resume", ("g", "m"), 7, [(_ID, 0)], [(_OTHER, 4), (_OTHER, 5)])]


def test_one_session_too_many_is_told_so_after_its_wait(node: _Node) -> None:
    node.limit = KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    reply: Any = share_fetch(node.call, _fetch(epoch=INITIAL_EPOCH, max_wait_ms=500))
    ((seconds, due),) = node.timers
    assert (seconds, reply.resolved) == (0.5, False)
    due()
    assert reply.value is node.limit
    node.limit = KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        share_fetch(node.call, _fetch())
    assert len(node.timers) == 1


def test_one_session_too_many_waits_no_longer_than_its_connection(node: _Node) -> None:
    node.limit = KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    reply: Any = share_fetch(node.call, _fetch(epoch=INITIAL_EPOCH, max_wait_ms=(1 << 31) - 1))
    reply.superseded(ApiKey.SHARE_FETCH)
    assert len(node.timers) == 1 and not reply.resolved
    reply.superseded(NO_REQUEST)
    assert node.timers == [] and reply.value is node.limit


def test_a_member_over_its_quota_is_told_how_long_to_wait(node: _Node) -> None:
    reply: Any = share_fetch(node.call, _fetch())
    assert reply.value.throttle_time_ms == 0
    node.quotas.active = True
    reply = share_fetch(node.call, _fetch())
    assert reply.value.throttle_time_ms == 12 and node.told[-1] == ("ann", "c", 0, 55)
