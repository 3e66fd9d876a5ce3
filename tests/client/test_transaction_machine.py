"""A producer's transactions without a socket: by hand, and by seeds against the broker's own coordinator."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.client.membership.commit import GroupMetadata
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.driver import Transactor
from ottla.client.transaction.state import CommitUnanswered, Phase, Transactions
from ottla.kernel.client_error import (
    Fenced,
    InvalidProducerEpoch,
    NotReachable,
    ProducerFenced,
    TlsFailed,
    TransactionAbortable,
    error_of,
)
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.txn.event import AddPartitions, WriteMarkers
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.api.end_txn import EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.txn.test_coordinator import Scene

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(version: int = 2) -> Transactions:
    machine = Transactions("x", 60_000)
    machine.init_answered(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    machine.begin(version)
    return machine


def added(*codes: ErrorCode) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=int(code))
        for number, code in enumerate(codes)
    ]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    )


def failure(code: ErrorCode) -> KafkaError:
    error = error_of(int(code))
    assert error is not None
    return error


# ---- by hand


def test_writing_adds_a_partition_by_the_second_protocol_and_only_the_coordinator_by_the_first() -> None:
    assert opened(2).admit(ONE)
    first = opened(1)
    assert not first.admit(ONE)
    assert list(first.pending) == [ONE]
    assert first.add_request().v3_and_below_topics[0].partitions == [0]
    first.add_answered(added(ErrorCode.NONE))
    assert first.admit(ONE)


def test_an_empty_transaction_needs_no_coordinator() -> None:
    machine = opened()
    machine.committing()
    assert machine.end_request() is None
    machine.ended()
    assert machine.phase is Phase.READY


def test_the_end_gives_the_next_epoch_by_the_second_protocol_only() -> None:
    for version, producer in ((1, (7, 0)), (2, (7, 1))):
        machine = opened(version)
        machine.admit(ONE)
        machine.begun = True
        machine.committing()
        request = machine.end_request()
        assert request is not None
        assert request.committed
        machine.end_answered(EndTxnResponse(producer_id=7, producer_epoch=1))
        assert (machine.phase, machine.producer) == (Phase.READY, producer)


def test_a_partition_that_was_refused_for_good_fails_the_transaction_and_another_error_does_not() -> None:
    machine = opened(1)
    machine.admit(ONE)
    machine.admit(TWO)
    with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
        machine.add_answered(added(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.OPERATION_NOT_ATTEMPTED))
    machine.check_open()
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        machine.add_answered(added(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED))
    assert machine.phase is Phase.FAILED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (NotReachable("no coordinator"), ErrorCode.REQUEST_TIMED_OUT),
        (TlsFailed("not trusted"), ErrorCode.REQUEST_TIMED_OUT),
        (ValueError("no such field"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_partition_that_cannot_be_added_fails_the_transaction_whatever_the_reason(
    error: Exception, code: ErrorCode
) -> None:
    """Its records would wait until delivery.timeout.ms, and a commit with them."""
    machine, sender = opened(version=1), Mock()
    machine.admit(ONE)
    cluster, read = Mock(retry=AsyncMock(side_effect=error)), ProducerSettings.read("127.0.0.1:1", {})
    asyncio.run(Transactor(cluster, sender, read, threading.Lock(), machine)._add())
    assert (machine.phase, machine.pending) == (Phase.FAILED, {})
    assert machine.error is not None and machine.error.code is code
    assert sender.wake.called, "the sender gives its records up"


def test_a_failed_transaction_tells_why_until_it_is_aborted() -> None:
    machine = opened()
    machine.admit(ONE)
    machine.given_up(failure(ErrorCode.TRANSACTION_ABORTABLE), numbered=True)
    for attempt in (machine.check_open, machine.committing):
        with pytest.raises(TransactionAbortable):
            attempt()
    machine.aborting()
    machine.end_answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    machine.begin(2)
    machine.check_open()


def test_a_leader_that_knows_a_newer_epoch_fails_the_transaction_and_the_coordinator_has_the_last_word() -> None:
    machine = opened()
    machine.admit(ONE)
    machine.given_up(failure(ErrorCode.INVALID_PRODUCER_EPOCH), numbered=True)
    assert (machine.phase, type(machine.error)) == (Phase.FAILED, InvalidProducerEpoch)
    machine.aborting()
    with pytest.raises(ProducerFenced):
        machine.end_answered(EndTxnResponse(error_code=int(ErrorCode.PRODUCER_FENCED)))
    assert machine.phase is Phase.FATAL
    with pytest.raises(Fenced):
        machine.begin(2)


def test_a_gap_in_the_sequences_is_mended_by_a_new_epoch() -> None:
    machine = opened(1)
    machine.admit(ONE)
    machine.add_request()
    machine.add_answered(added(ErrorCode.NONE))
    machine.given_up(failure(ErrorCode.REQUEST_TIMED_OUT), numbered=True)
    machine.aborting()
    needed = [machine.needs_init]
    end = machine.end_request()
    assert end is not None and (end.transactional_id, end.producer_id, end.committed) == ("x", 7, False)
    machine.end_answered(EndTxnResponse())
    assert [*needed, machine.needs_init] == [False, True], "the coordinator ends it first"
    request = machine.init_request()
    assert (request.producer_id, request.producer_epoch) == (7, 0)
    machine.init_answered(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    assert (machine.phase, machine.producer) == (Phase.READY, (7, 1))


def test_what_was_never_numbered_leaves_no_gap() -> None:
    machine = opened(1)
    machine.given_up(failure(ErrorCode.REQUEST_TIMED_OUT), numbered=False)
    machine.aborting()
    machine.ended()
    assert machine.phase is Phase.READY


def test_an_end_can_be_repeated_and_nothing_else_be_done_meanwhile() -> None:
    machine = opened()
    machine.admit(ONE)
    machine.committing()
    machine.committing()
    assert machine.end_request() == machine.end_request()
    with pytest.raises(OttlaError, match="a commit is under way"):
        machine.check_open()
    with pytest.raises(OttlaError, match="a commit is under way"):
        machine.begin(2)


def test_a_commit_can_be_aborted_until_it_is_sent_and_when_it_was_refused() -> None:
    machine = opened()
    machine.admit(ONE)
    machine.committing()
    machine.aborting()
    machine = opened()
    machine.admit(ONE)
    machine.committing()
    machine.end_request()
    with pytest.raises(CommitUnanswered, match="only commit can be repeated"):
        machine.aborting()
    with pytest.raises(KafkaError):
        machine.end_answered(EndTxnResponse(error_code=int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    with pytest.raises(CommitUnanswered, match="only commit can be repeated"):
        machine.aborting()
    with pytest.raises(KafkaError):
        machine.end_answered(EndTxnResponse(error_code=int(ErrorCode.TRANSACTION_ABORTABLE)))
    machine.aborting()
    machine.end_request()
    machine.end_answered(EndTxnResponse(producer_id=7, producer_epoch=2))
    machine.begin(2)
    machine.committing()
    machine.aborting()


def test_offsets_that_an_answer_leaves_out_are_still_owed() -> None:
    machine = opened()
    machine.owe(GroupMetadata("g"), {ONE: (1, -1, ""), TWO: (2, -1, "")})
    owed = machine.owed[0]
    parts = [TxnOffsetCommitResponsePartition(partition_index=one.partition) for one in (ONE, TWO)]
    with pytest.raises(KafkaError, match="lacks the offset") as error:
        machine.offsets_answered(
            owed, TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=parts[:1])])
        )
    assert error.value.code.retriable
    assert machine.owed == [owed]
    machine.offsets_answered(
        owed, TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=parts)])
    )
    assert machine.owed == []


# ---- by seeds


@dataclass
class Written:
    """A value in a partition's log."""

    value: int
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    committed: bool | None = None


class World(Scene):
    """The coordinator, and two partitions whose leaders know the epochs that they have seen."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.epochs: dict[tuple[TopicPartition, int], int] = {}
        self.sequences: dict[tuple[TopicPartition, int, int], int] = {}
        super().__init__()

    def write_markers(self) -> None:
        for marker in self.markers:
            self._mark(marker)
        super().write_markers()

    def _mark(self, marker: WriteMarkers) -> None:
        for partition in marker.partitions:
            self.epochs[partition, marker.producer_id] = marker.producer_epoch
            for one in self.written:
                if (one.partition, one.producer_id) == (partition, marker.producer_id) and one.committed is None:
                    one.committed = marker.committed

    def produce(self, partition: TopicPartition, value: int, client: Client) -> ErrorCode:
        assert client.machine.producer is not None
        producer_id, epoch = client.machine.producer
        if epoch < self.epochs.get((partition, producer_id), -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if client.version >= 2:
            code = self.join(client, partition)
        else:
            code = self.verify("x", producer_id, epoch, partition)
        if code:
            return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
        expected = self.sequences.get((partition, producer_id, epoch), 0)
        assert client.next_sequence(partition) == expected, "a gap: the broker would refuse it"
        self.sequences[partition, producer_id, epoch] = expected + 1
        self.epochs[partition, producer_id] = epoch
        self.written.append(Written(value, partition, producer_id, epoch))
        return ErrorCode.NONE

    def join(self, client: Client, partition: TopicPartition) -> ErrorCode:
        assert client.machine.producer is not None
        code: ErrorCode = self.ask(AddPartitions("x", *client.machine.producer, (partition,), client.version))
        return code


class Client:
    """One producer: its machine, and what its program believes."""

    def __init__(self, version: int) -> None:
        self.machine = Transactions("x", 60_000)
        self.version = version
        self.values: list[int] = []
        self.sequences: dict[tuple[TopicPartition, tuple[int, int]], int] = {}

    def next_sequence(self, partition: TopicPartition) -> int:
        assert self.machine.producer is not None
        return self.sequences.get((partition, self.machine.producer), 0)

    def sent(self, partition: TopicPartition) -> None:
        """A sequence is used up, whatever becomes of it."""
        assert self.machine.producer is not None
        self.sequences[partition, self.machine.producer] = self.next_sequence(partition) + 1


#: What becomes of a request: it is answered, or lost before or after the coordinator has acted.
FATE = st.sampled_from(["answered"] * 20 + ["never came", "answer lost"])
WHO = st.integers(0, 1)


class Producers(RuleBasedStateMachine):
    """Two producers of one transactional id, on connections that lose requests and answers."""

    @initialize(version=st.integers(1, 2))
    def begin(self, version: int) -> None:
        self.world = World()
        self.clients = [Client(version), Client(version)]
        self.next_value = 0
        #: Values whose commit was confirmed, or decided and not answered; and those that must never be seen.
        self.confirmed: set[int] = set()
        self.undone: set[int] = set()

    def ask(self, request: Any, version: int, fate: str) -> Any:
        if fate == "never came":
            return None
        response = self.world.ask(request, version)
        return response if fate == "answered" else None

    @rule(who=WHO, work=st.lists(st.tuples(st.sampled_from([ONE, TWO]), FATE), min_size=1, max_size=5))
    def goes_on(self, who: int, work: list[tuple[TopicPartition, str]]) -> None:
        """Whatever comes next for a program that wants to write."""
        client = self.clients[who]
        for partition, fate in work:
            if client.machine.phase is Phase.NEW or client.machine.needs_init:
                self.starts(client, fate)
            if client.machine.phase is Phase.READY:
                client.machine.begin(client.version)
                client.values = []
            if client.machine.phase is Phase.OPEN:
                self.writes(client, partition, fate)

    def starts(self, client: Client, fate: str) -> None:
        response = self.ask(client.machine.init_request(), 5, fate)
        if response is not None:
            self.told(client.machine.init_answered, response)

    def writes(self, client: Client, partition: TopicPartition, fate: str) -> None:
        machine = client.machine
        while not machine.admit(partition):
            machine.add_request()
            if fate == "never came":
                return
            code = self.world.join(client, partition)
            if fate == "answered":
                response = added(code)
                response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_index = partition.partition
                if self.told(machine.add_answered, response):
                    continue
            return
        value, self.next_value = self.next_value, self.next_value + 1
        if fate == "never came":
            self.undone.add(value)
            client.sent(partition)
            machine.given_up(failure(ErrorCode.REQUEST_TIMED_OUT), numbered=True)
            return
        code = self.world.produce(partition, value, client)
        client.values.append(value)
        if not code.retriable:
            client.sent(partition)
        if fate == "answer lost":
            machine.given_up(failure(ErrorCode.REQUEST_TIMED_OUT), numbered=True)
        elif code and not code.retriable:
            self.undone.add(value)
            machine.given_up(failure(code), numbered=True)
        elif code:
            client.values.remove(value)

    @rule(who=WHO, commit=st.booleans(), fates=st.lists(FATE, min_size=1, max_size=3))
    def finishes(self, who: int, commit: bool, fates: list[str]) -> None:
        for fate in fates:
            (self.commits if commit else self.aborts)(self.clients[who], fate)

    def commits(self, client: Client, fate: str) -> None:
        if client.machine.phase in (Phase.OPEN, Phase.COMMITTING):
            client.machine.committing()
            if self.ends(client, fate):
                self.confirmed |= set(client.values)

    def aborts(self, client: Client, fate: str) -> None:
        phases = (Phase.OPEN, Phase.COMMITTING, Phase.FAILED, Phase.ABORTING)
        if client.machine.phase in phases and not client.machine.needs_init:
            try:
                client.machine.aborting()
            except CommitUnanswered:
                return
            self.undone |= set(client.values)
            self.ends(client, fate)

    def ends(self, client: Client, fate: str) -> bool:
        machine = client.machine
        request = machine.end_request()
        if request is None:
            machine.ended()
            return True
        response = self.ask(request, 5 if client.version >= 2 else 4, fate)
        return response is not None and self.told(machine.end_answered, response)

    def told(self, take_in: Any, response: Any) -> bool:
        try:
            take_in(response)
        except KafkaError:
            return False
        return True

    @rule(what=st.sampled_from(["holds markers", "writes markers", "crashes"]))
    def coordinator(self, what: str) -> None:
        if what == "crashes":
            self.world.crash()
        else:
            self.world.holding = what == "holds markers"
            self.world.carry_out([])

    @invariant()
    def nothing_that_was_undone_is_ever_committed(self) -> None:
        assert not {one.value for one in self.world.written if one.committed} & self.undone

    @invariant()
    def what_was_confirmed_is_never_undone(self) -> None:
        assert not {one.value for one in self.world.written if one.committed is False} & self.confirmed

    @invariant()
    def of_one_transaction_all_is_seen_or_nothing(self) -> None:
        if self.world.holding:
            return
        for client in self.clients:
            ends = {one.committed for one in self.world.written if one.value in client.values}
            assert ends <= {True} or ends <= {False} or ends <= {None}

    def teardown(self) -> None:
        """With nothing lost any more, whoever is not locked out finishes."""
        if not hasattr(self, "world"):
            return
        self.world.holding = False
        self.world.write_markers()
        for client in self.clients:
            for _ in range(4):
                if client.machine.phase is Phase.NEW or client.machine.needs_init:
                    self.starts(client, "answered")
                if client.machine.phase is Phase.COMMITTING:
                    self.commits(client, "answered")
                else:
                    self.aborts(client, "answered")
            assert client.machine.phase in (Phase.READY, Phase.FATAL), client.machine.phase
        self.nothing_that_was_undone_is_ever_committed()
        self.what_was_confirmed_is_never_undone()
        if any(client.machine.phase is Phase.READY for client in self.clients):
            assert all(one.committed is not None or one.value in self.left_open() for one in self.world.written)

    def left_open(self) -> set[int]:
        """Of producers that were locked out: the coordinator ends those by their timeout."""
        return {value for one in self.clients if one.machine.phase is Phase.FATAL for value in one.values}


TestProducers = Producers.TestCase
TestProducers.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
