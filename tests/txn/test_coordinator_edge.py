"""The transaction coordinator where time, protocols and partitions meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.coordinator.contract import Append, Loaded, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.transaction import EPOCH_MAX, State
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from tests.txn.test_coordinator import A0, A1, Scene


def _pass(scene: Scene, milliseconds: int) -> None:
    scene.now_ms += milliseconds
    scene.carry_out(scene.machine.step(TimePassed(), Now(scene.now_ms, scene.now_ms)))


@pytest.mark.parametrize("version", [1, 2])
def test_who_keeps_adding_partitions_times_out_all_the_same(version: int) -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=25_000)
    for number in range(3):
        assert scene.add(producer, TopicPartition("a", number), version=version) is ErrorCode.NONE
        _pass(scene, 10_000)
    # It began 30 s ago, and was last added to 10 s ago.
    assert scene.state() is State.COMPLETE_ABORT


def test_a_transaction_has_all_of_its_time() -> None:
    scene = Scene()
    _pass(scene, 10_000)
    producer = scene.init(timeout_ms=25_000)
    _pass(scene, 300_000)
    scene.add(producer, A0)
    for _ in range(2):
        _pass(scene, 10_000)
        assert scene.state() is State.ONGOING
    _pass(scene, 10_000)
    assert scene.state() is State.COMPLETE_ABORT


@pytest.mark.parametrize("version", [1, 2])
def test_a_timeout_locks_out_the_producer_whichever_protocol_it_speaks(version: int) -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer, A0, version=version)
    scene.holding = True
    _pass(scene, 20_000)
    (markers,) = scene.markers
    assert not markers.committed
    assert markers.producer_epoch == producer.producer_epoch + 1, "the marker's epoch fences the writer in the log"
    scene.holding = False
    scene.write_markers()
    assert scene.state() is State.COMPLETE_ABORT
    assert scene.add(producer, A0, version=version) is ErrorCode.PRODUCER_FENCED
    assert scene.end(producer, version=4).error_code == ErrorCode.PRODUCER_FENCED
    assert scene.verify("t", producer.producer_id, producer.producer_epoch, A0) is ErrorCode.PRODUCER_FENCED
    assert scene.init().producer_epoch == producer.producer_epoch + 2


@pytest.mark.parametrize(("level", "code"), [(0, ErrorCode.PRODUCER_FENCED), (1, ErrorCode.PRODUCER_FENCED), (2, 0)])
def test_a_producer_that_timed_out_begins_again_only_where_ends_raise_epochs(level: int, code: int) -> None:
    scene = Scene()
    scene.machine = TransactionCoordinator(TransactionSettings(), lambda: next(scene.ids), lambda: level)
    scene.machine.step(Loaded(), Now(scene.now_ms, scene.now_ms))
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer, A0)
    _pass(scene, 20_000)
    assert scene.state() is State.COMPLETE_ABORT
    assert scene.init(producer.producer_id, producer.producer_epoch).error_code == code


def test_a_partition_is_verified_against_the_open_transaction() -> None:
    scene = Scene()
    producer = scene.init()
    ours = producer.producer_id, producer.producer_epoch

    def verified(partition: TopicPartition, name: str = "t", who: int = ours[0], epoch: int = ours[1]) -> ErrorCode:
        return scene.verify(name, who, epoch, partition)

    assert verified(A0) is ErrorCode.TRANSACTION_ABORTABLE
    scene.add(producer, A0, version=1)
    assert verified(A0) is ErrorCode.NONE
    assert verified(A1) is ErrorCode.TRANSACTION_ABORTABLE
    assert verified(A0, "other") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verified(A0, "") is ErrorCode.INVALID_REQUEST
    assert verified(A0, who=ours[0] + 1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verified(A0, epoch=ours[1] + 1) is ErrorCode.PRODUCER_FENCED
    scene.holding = True
    scene.end(producer, version=4)
    assert verified(A0) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.write_markers()
    assert verified(A0) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_decided_transaction_is_kept_until_its_markers_are_written() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0)
    scene.holding = True
    scene.end(producer)
    _pass(scene, 8 * 24 * 3_600_000)
    assert scene.state() is State.PREPARE_COMMIT
    scene.holding = False
    scene.write_markers()
    assert scene.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (4, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_locked_out_producer_is_told_in_words_that_its_version_has(version: int, code: ErrorCode) -> None:
    scene = Scene()
    older = scene.init()
    scene.add(scene.init(), A0)
    assert scene.end(older, version=version).error_code == code


def test_nobody_ends_a_transaction_while_its_end_is_under_way() -> None:
    scene = Scene()
    producer = scene.init()
    scene.add(producer, A0)
    scene.holding = True
    next_one = scene.end(producer)
    for commit in (True, False):
        assert scene.end(next_one, commit=commit).error_code == ErrorCode.PRODUCER_FENCED
    assert scene.end(producer).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(scene.markers) == 1


def test_the_first_protocol_ends_nothing_that_never_began() -> None:
    for commit in (True, False):
        scene = Scene()
        assert scene.end(scene.init(), commit=commit, version=4).error_code == ErrorCode.INVALID_TXN_STATE


class _Dry:
    """Producer ids that may have run out."""

    def __init__(self) -> None:
        self.left = 10

    def __call__(self) -> int | None:
        self.left -= 1
        return 1000 - self.left if self.left >= 0 else None


def _dry(scene: Scene) -> _Dry:
    ids = scene.machine._next_producer_id = _Dry()
    return ids


def test_a_producer_that_finds_no_id_left_comes_again() -> None:
    scene = Scene()
    ids = _dry(scene)
    ids.left = 0
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    answer = scene.ask(request)
    assert (answer.error_code, scene.machine.transactions) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
    ids.left = 1
    assert scene.ask(request).error_code == ErrorCode.NONE


def test_an_end_that_needs_a_new_id_waits_until_there_is_one() -> None:
    scene = Scene()
    producer = scene.init()
    assert scene.add(producer, A0) is ErrorCode.NONE
    known = scene.machine.transactions["t"]
    scene.machine.transactions["t"] = replace(known, producer_epoch=EPOCH_MAX)
    producer.producer_epoch = EPOCH_MAX
    ids = _dry(scene)
    ids.left = 0
    assert scene.end(producer).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    _pass(scene, 100_000)
    states = [scene.machine.transactions["t"].state]
    ids.left = 1
    _pass(scene, 10_000)
    states.append(scene.machine.transactions["t"].state)
    assert states == [State.ONGOING, State.COMPLETE_ABORT]


@pytest.mark.parametrize("recovers", [False, True])
def test_an_init_at_the_last_epoch_begins_with_a_new_id_at_epoch_0(recovers: bool) -> None:
    scene = Scene()
    producer = scene.init()
    scene.machine.transactions["t"] = replace(scene.machine.transactions["t"], producer_epoch=EPOCH_MAX)
    own = (producer.producer_id, EPOCH_MAX) if recovers else ()
    fresh = scene.init(*own)
    assert (fresh.error_code, fresh.producer_id, fresh.producer_epoch) == (ErrorCode.NONE, 1001, 0)
    assert scene.add(fresh, A0) is ErrorCode.NONE


def test_a_coordinator_that_is_loaded_knows_every_field_of_its_transactions() -> None:
    scene = Scene()
    _pass(scene, 7_000)
    producer = scene.init(timeout_ms=25_000)
    _pass(scene, 3_000)
    scene.add(producer, A0, version=2)
    _pass(scene, 2_000)
    scene.add(producer, A1, version=2)
    before = scene.machine.transactions["t"]
    assert (before.start_ms, before.update_ms, before.client_version) == (1_010_000, 1_012_000, 2)
    assert replace(scene.loaded().transactions["t"], last_epoch=before.last_epoch) == before


def test_many_expired_ids_go_in_batches_that_a_log_accepts() -> None:
    scene = Scene()
    names = [f"{number:04d}" + "x" * 16_000 for number in range(60)]
    for name in names:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        assert scene.ask(request).error_code == 0
    scene.now_ms += scene.machine._settings.transactional_id_expiration_ms + 1
    effects = scene.machine.step(TimePassed(), Now(scene.now_ms, scene.now_ms))
    batches = [batch for effect in effects if isinstance(effect, Append) for batch in effect.batches(1 << 20)]
    assert 1 < len(batches) < len(names)
    assert all(sum(len(key) for key, _ in entries) < 300_000 for entries in batches)
    scene.carry_out(effects)
    assert scene.machine.transactions == {}
