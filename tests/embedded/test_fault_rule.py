"""Which requests a fault takes, and how often; and replies that are replaced: without a node."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import ottla
from ottla.broker.call.reply import Later, NoReply
from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.client import Admin, TopicPartition
from ottla.embedded.fault_rule import AnswerInstead, Disconnect, Error, Fault, Hold, Watch, Where, replace_reply
from ottla.embedded.faults import Faults
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.net.inbound import PeerError
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic

ALL = frozenset({ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.FIND_COORDINATOR, ApiKey.FETCH})
ID = Uuid(b"\1" * 16)


def call_of(client: str = "c") -> Any:
    topics = {"known": SimpleNamespace(topic_id=ID)}
    session = SimpleNamespace(partitions={("held", 0): SimpleNamespace(replica=1)})
    sessions = SimpleNamespace(find=lambda number: session if number == 7 else None)
    node = SimpleNamespace(image=SimpleNamespace(topics=topics), fetch_sessions=sessions)
    return SimpleNamespace(client_id=client, version=3, node=node, connection=Mock())


def metadata(*names: str, topic_id: Uuid | None = None) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics + ([MetadataRequestTopic(topic_id=topic_id)] if topic_id else []))


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(group_id=group)


@pytest.mark.parametrize(
    ("where", "request_", "key", "fits"),
    [
        ({}, metadata(), ApiKey.METADATA, True),
        ({}, metadata(), ApiKey.PRODUCE, False),
        ({"client_id": "c"}, metadata(), ApiKey.METADATA, True),
        ({"client_id": "d"}, metadata(), ApiKey.METADATA, False),
        ({"topic": "a"}, metadata("b", "a"), ApiKey.METADATA, True),
        ({"topic": "a"}, metadata("b"), ApiKey.METADATA, False),
        ({"topic": "a"}, metadata(), ApiKey.METADATA, False),
        ({"topic": "known"}, metadata(topic_id=ID), ApiKey.METADATA, True),
        ({"topic": "a"}, metadata(topic_id=ID), ApiKey.METADATA, False),
        ({"topic": "held"}, FetchRequest(session_id=7), ApiKey.FETCH, True),
        ({"topic": "held"}, FetchRequest(session_id=8), ApiKey.FETCH, False),
        ({"topic": "other"}, FetchRequest(session_id=7), ApiKey.FETCH, False),
        ({"group": "g"}, join("g"), ApiKey.JOIN_GROUP, True),
        ({"group": "g"}, join("h"), ApiKey.JOIN_GROUP, False),
        ({"group": "g"}, metadata("g"), ApiKey.METADATA, False),
        ({"group": "g"}, FindCoordinatorRequest(coordinator_keys=["f", "g"]), ApiKey.FIND_COORDINATOR, True),
        ({"transactional_id": "g"}, FindCoordinatorRequest(key="g"), ApiKey.FIND_COORDINATOR, True),
        ({"transactional_id": "g"}, join("g"), ApiKey.JOIN_GROUP, False),
        ({"group": "g", "client_id": "d"}, join("g"), ApiKey.JOIN_GROUP, False),
    ],
)
def test_a_fault_is_of_requests_that_name_what_it_is_about(
    where: dict[str, Any], request_: Any, key: ApiKey, fits: bool
) -> None:
    assert Where(ALL, **where).fits(call_of(), request_, key) is fits


@pytest.mark.parametrize(
    ("times", "after", "taken"),
    [(1, 0, [True, False, False]), (2, 1, [False, True, True, False]), (None, 2, [False, False, True, True])],
)
def test_a_fault_takes_so_many_requests_after_so_many(times: int | None, after: int, taken: list[bool]) -> None:
    watch = Watch(Where(ALL), times, after)
    request = metadata()
    for number, takes in enumerate(taken):
        if watch.fits(call_of(), request, ApiKey.METADATA):
            assert watch.perform(call_of(), request, ApiKey.METADATA, lambda: "answer") == "answer"
        assert watch.hits == len(watch.requests) == sum(taken[: number + 1]), takes
    assert set(watch.requests) == {(ApiKey.METADATA, 3, "c")}
    watch.wait(sum(taken), timeout_s=0)
    with pytest.raises(TimeoutError, match=rf"^the fault took {sum(taken)} requests in 0 s, not 9$"):
        watch.wait(9, timeout_s=0)


@pytest.mark.parametrize(("times", "after"), [(0, 0), (-1, 0), (1, -1), (None, -1)])
def test_a_fault_that_takes_nothing_is_refused(times: int | None, after: int) -> None:
    with pytest.raises(ValueError, match="times is at least 1, or None for always; after is at least 0"):
        Watch(Where(ALL), times, after)


def test_only_partitions_that_fail_alone_are_told() -> None:
    produce = frozenset({ApiKey.PRODUCE})
    Error(Where(produce, topic="t", partition=0), 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(ValueError, match="only the requests whose partitions fail alone can be told a partition"):
        Error(Where(produce | {ApiKey.METADATA}, topic="t", partition=0), 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def resolved(reply: Any) -> list[Any]:
    found: list[Any] = []
    reply.then(found.append)
    return found


def test_a_request_is_carried_out_before_it_is_refused_or_not_at_all() -> None:
    ran: list[int] = []

    def go_on() -> str:
        ran.append(1)
        return "answer"

    error = Error(Where(ALL), None, 0, ErrorCode.NOT_CONTROLLER)
    with pytest.raises(KafkaError) as raised:
        error.perform(call_of(), join("g"), ApiKey.JOIN_GROUP, go_on)
    assert (raised.value.code, ran, error.hits) == (ErrorCode.NOT_CONTROLLER, [], 1)
    late = Error(Where(ALL), None, 0, ErrorCode.NOT_CONTROLLER, carried_out=True)
    (answer,) = resolved(late.perform(call_of(), join("g"), ApiKey.JOIN_GROUP, go_on))
    assert (answer.code, ran) == (ErrorCode.NOT_CONTROLLER, [1])
    call = call_of()
    with pytest.raises(PeerError):
        Disconnect(Where(ALL), None, 0).perform(call, join("g"), ApiKey.JOIN_GROUP, go_on)
    assert ran == [1]
    reply = Disconnect(Where(ALL), None, 0, carried_out=True).perform(call, join("g"), ApiKey.JOIN_GROUP, go_on)
    assert (ran, resolved(reply)) == ([1, 1], [])
    call.connection.close.assert_called_once_with("dropped on request")


def test_an_answer_of_the_test_goes_before_the_nodes_unless_it_is_none() -> None:
    given: list[tuple[Any, int]] = []

    def answer(request: Any, version: int) -> Any:
        given.append((request, version))
        return None if len(given) == 1 else "mine"

    fault = AnswerInstead(Where(ALL), None, 0, answer)
    request = join("g")
    said = [fault.perform(call_of(), request, ApiKey.JOIN_GROUP, lambda: "its") for _ in range(2)]
    assert (said, given) == (["its", "mine"], [(request, 3)] * 2)


def test_held_answers_wait_for_their_release_or_their_time() -> None:
    call = call_of()
    call.node.loop = Mock()
    hold = Hold(Where(ALL), None, 0, lambda work: work(), delay_ms=1500)
    replies = [hold.perform(call, join("g"), ApiKey.JOIN_GROUP, partial(int, number)) for number in range(3)]
    found: list[Any] = []
    for reply in replies:
        reply.then(found.append)
    assert found == []
    timers = [each.args for each in call.node.loop.call_later.call_args_list]
    assert [each[0] for each in timers] == [1.5] * 3
    _, answer, number = timers[1]
    answer(number)
    answer(number)
    assert found == [1]
    hold.release()
    assert found == [1, 0, 2]
    hold.release()
    forever = Hold(Where(ALL), None, 0, lambda work: work())
    forever.perform(call, join("g"), ApiKey.JOIN_GROUP, lambda: 7)
    assert call.node.loop.call_later.call_count == 3


def test_a_reply_is_replaced_when_there_is_one() -> None:
    none = NoReply()
    assert replace_reply(none, lambda *_: None) is none
    assert resolved(replace_reply("a", lambda value, resolve: resolve(value * 2))) == ["aa"]
    later = Later()
    found = resolved(replace_reply(later, lambda value, resolve: resolve(value * 2)))
    assert found == []
    later.resolve("b")
    assert found == ["bb"]


_SELECTORS = {"topic": "t", "group": "g", "transactional_id": "x", "client_id": "c"}
#: A fault, by what makes it; what may select its requests, and how many it takes if that is not said.
_MADE: list[tuple[str, tuple[Any, ...], dict[str, Any], int | None]] = [
    ("error", (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER), {**_SELECTORS, "partition": 3}, 1),
    ("disconnect", (ApiKey.PRODUCE,), _SELECTORS, 1),
    ("delay", (ApiKey.PRODUCE, 5), _SELECTORS, None),
    ("hold", (ApiKey.PRODUCE,), _SELECTORS, None),
    ("answer", (ApiKey.PRODUCE, lambda request, version: None), {"client_id": "c"}, 1),
]


def _made(name: str, given: tuple[Any, ...], **more: Any) -> Fault:
    made: Fault = getattr(Faults(lambda work: work()), name)(*given, **more)
    return made


def _takes(fault: Fault) -> list[bool]:
    fits = partial(fault.fits, call_of(), metadata(), ApiKey.METADATA)
    return [fits() and fault.claim() for _ in range(5)]


@pytest.mark.parametrize(("name", "given", "selectors", "times"), _MADE)
def test_a_fault_takes_what_its_arguments_say(
    name: str, given: tuple[Any, ...], selectors: dict[str, Any], times: int | None
) -> None:
    one = frozenset({ApiKey.PRODUCE})
    assert _made(name, given).where == Where(one)
    for field, value in selectors.items():
        assert _made(name, given, **{field: value}).where == Where(one, **{field: value})
    assert _made(name, given, **selectors).where == Where(one, **selectors)
    if name == "answer":
        return
    every = (None, *given[1:])
    assert _made(name, every).where == Where(frozenset(HANDLERS))
    assert _made(name, ([ApiKey.FETCH, ApiKey.PRODUCE], *given[1:])).where.apis == {ApiKey.FETCH, ApiKey.PRODUCE}
    assert _takes(_made(name, every)) == [True, *[times is None] * 4]
    assert _takes(_made(name, every, times=2, after=1)) == [False, True, True, False, False]
    assert _takes(_made(name, every, times=None, after=2)) == [False, False, True, True, True]


def test_what_has_no_times_goes_on_until_it_is_removed() -> None:
    faults = Faults(lambda work: work())
    assert faults.watch(client_id="c").where == Where(frozenset(HANDLERS), client_id="c")
    assert faults.watch(ApiKey.FETCH).where == Where(frozenset({ApiKey.FETCH}))
    of_group, of_id = faults.coordinator_unavailable("g"), faults.coordinator_unavailable(transactional_id="x")
    assert of_group.where == Where(frozenset(HANDLERS), group="g")
    assert of_id.where == Where(frozenset(HANDLERS), transactional_id="x")
    assert [of_group.claim() for _ in range(3)] == [True] * 3
    once = faults.coordinator_unavailable("g", times=1)
    assert once.claim()
    assert not once.fits(call_of(), join("g"), ApiKey.JOIN_GROUP)
    with pytest.raises(OttlaError, match="the node is not running"):
        faults.drop_connections()


def test_a_coordinator_moves_and_knows_what_it_knew() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("t")
        place = TopicPartition("t", 0)
        admin.alter_group_offsets("g", {place: 5}).check()
        node.faults.move_coordinator("g")
        assert admin.list_group_offsets("g")[place].offset == 5
        for wrong in ({}, {"group": "g", "transactional_id": "x"}):
            with pytest.raises(ValueError, match=r"^give a group or a transactional_id$"):
                node.faults.move_coordinator(**wrong)
