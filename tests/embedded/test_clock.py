"""A clock that the test moves: what takes minutes takes no time."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, ConfigResource, Consumer, OffsetSpec, Producer, ResourceType, TopicPartition
from ottla.host.shift import ShiftedClock, new_shifted_loop
from ottla.kernel.error import ErrorCode
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire_client import WireClient, make_coordinators
from tests.client.conftest import eventually

HOUR_MS = 3_600_000


def test_old_segments_go_when_their_time_has_passed() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        node.create_topic("t", settings={"retention.ms": HOUR_MS, "segment.ms": HOUR_MS // 2})
        producer.send("t", b"old").result(30)
        node.clock.advance(2 * HOUR_MS)
        producer.send("t", b"new", timestamp=node.clock.now_ms()).result(30)
        node.clock.advance(1)
        # The round of retention that comes every five minutes.
        node.clock.advance(300_000)
        one = TopicPartition("t", 0)
        start = admin.list_offsets({one: OffsetSpec.EARLIEST})[one]
        assert start.offset == 1


def test_files_of_a_deleted_topic_and_of_old_segments_go_when_the_delay_has_passed(tmp_path: Path) -> None:
    with (
        ottla.Node(tmp_path, settings={"log.segment.delete.delay.ms": 1000}) as node,
        Admin(node.bootstrap_servers) as admin,
        Producer(node.bootstrap_servers) as producer,
    ):
        node.create_topic("gone")
        node.create_topic("t", settings={"segment.ms": HOUR_MS})
        producer.send("t", b"old", timestamp=node.clock.now_ms()).result(30)
        node.clock.advance(2 * HOUR_MS)
        producer.send("t", b"new", timestamp=node.clock.now_ms()).result(30)
        admin.delete_records({TopicPartition("t", 0): 1}).check()
        admin.delete_topics(["gone"]).check()
        # The round of retention that comes every five minutes deletes the segment.
        node.clock.advance(300_000)
        node.clock.advance(1000)

        def are_gone() -> bool:
            # A walk passes over a directory that goes meanwhile.
            found = [name for _, directories, files in os.walk(tmp_path) for name in (*directories, *files)]
            return not any(name.endswith(("-delete", ".deleted")) for name in found)

        eventually(are_gone)


def test_a_silent_producer_is_forgotten_at_the_next_check_after_the_time_that_is_set() -> None:
    one = TopicPartition("t", 0)
    settings = {"producer.id.expiration.check.interval.ms": 1000}
    with ottla.Node(settings=settings) as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("t")
        with Producer(node.bootstrap_servers) as producer:
            producer.send("t", b"v", timestamp=node.clock.now_ms()).result(30)
        node.clock.advance(HOUR_MS)
        assert len(admin.describe_producers([one])[one]) == 1
        whole_cluster = ConfigResource(ResourceType.BROKER, "")
        admin.alter_configs({whole_cluster: {"producer.id.expiration.ms": HOUR_MS}}).check()
        node.clock.advance(1000)
        assert not admin.describe_producers([one])[one]


def test_a_silent_member_is_out_when_its_session_is_over() -> None:
    with ottla.Node() as node, WireClient(node.bootstrap_servers) as client:
        make_coordinators(client)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = member = client.ask(join, 9).member_id
        joined = client.ask(join, 9)
        client.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=member,
                assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"")],
            ),
            5,
        )
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=member)
        node.clock.advance(20_000)
        assert client.ask(beat, 4).error_code == 0
        node.clock.advance(46_000)
        assert client.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_that_nobody_ends_is_aborted() -> None:
    with (
        ottla.Node() as node,
        Producer(node.bootstrap_servers, transactional_id="t", transaction_timeout_ms=60_000) as producer,
        Consumer(node.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as reader,
        Producer(node.bootstrap_servers) as other,
    ):
        node.create_topic("t")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"undone").result(30)
        other.send("t", b"behind it").result(30)
        node.clock.advance(120_000)
        reader.assign([TopicPartition("t", 0)])
        found: list[bytes | None] = []
        while not found:
            found = [record.value for record in reader.poll(1)]
        assert found == [b"behind it"]


def test_a_node_that_was_down_starts_as_much_later() -> None:
    with ottla.Node() as node:
        before = node.clock.now_ms()
        node.stop()
        node.clock.advance(HOUR_MS)
        node.start()
        assert node.clock.now_ms() >= before + HOUR_MS


def test_time_does_not_go_back() -> None:
    with ottla.Node() as node, pytest.raises(ValueError, match="does not go back"):
        node.clock.advance(-1)


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.mark.parametrize("machine", ["uvloop", "asyncio"])
def test_timers_run_once_in_the_order_in_which_they_are_due(
    clock: ShiftedClock, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine == "asyncio":
        monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    loop = new_shifted_loop(clock)
    said: list[str] = []
    try:
        loop.call_later(20, said.append, "second")
        loop.call_later(10, said.append, "first")
        loop.call_later(15, said.append, "never").cancel()
        third = loop.call_later(30, said.append, "cancelled by the one before it")
        loop.call_later(25, third.cancel)
        later = loop.call_later(7200, said.append, "later")
        loop.call_soon(clock.advance, 60_000)
        loop.run_until_complete(asyncio.sleep(0))
        assert said == ["first", "second"]
        assert (third.cancelled(), later.cancelled()) == (True, False)
        # What was far away is near now, and comes by itself.
        loop.call_soon(clock.advance, 7_139_990)
        while len(said) < 3:
            loop.run_until_complete(asyncio.sleep(0))
        assert said == ["first", "second", "later"]
    finally:
        loop.close()


def test_a_timer_that_fails_is_reported_and_the_others_run(clock: ShiftedClock) -> None:
    loop = new_shifted_loop(clock)
    told: list[str] = []
    said: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    try:
        loop.call_later(1, int, "no number")
        loop.call_later(2, said.append, "on")
        loop.call_soon(clock.advance, 5_000)
        loop.run_until_complete(asyncio.sleep(0))
        assert (told, said) == (["invalid literal for int() with base 10: 'no number'"], ["on"])
    finally:
        loop.close()


def test_the_clock_may_be_moved_from_many_threads() -> None:
    with ottla.Node() as node:
        before = node.clock.now_ms()
        threads = [threading.Thread(target=node.clock.advance, args=(HOUR_MS,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert node.clock.now_ms() >= before + 8 * HOUR_MS
