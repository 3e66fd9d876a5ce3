"""Compaction in a node that serves: the process, the conversation with it, the swap, the settings that steer them."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.broker.partitions import cleaner
from ottla.broker.partitions.clean_process import CleanerPace, converse
from ottla.host.disk import HostDisk
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.log.checkpoint import read_offsets
from ottla.log.cleaning.job import Job, plan
from ottla.log.log import Log, LogSettings
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import NewRecord, Record, build, read
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.timeout(60)

_COMPACT = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}
_NOW_MS = 1_000_000


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings={"log.cleaner.backoff.ms": 20}) as node:
        yield node


def _until(holds: Callable[[], bool]) -> None:
    """The cleaner says nothing to clients: what it has done can only be looked for."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold within half a minute"


def _fill(client: WireClient, topic: str, keys: int, rounds: int) -> dict[bytes, bytes]:
    """Some segments full of the same keys; what each is worth in the end."""
    latest: dict[bytes, bytes] = {}
    for number in range(rounds):
        records: list[NewRecord] = [(_NOW_MS, b"k%d" % key, b"%d " % number * 2000, []) for key in range(keys)]
        latest.update({b"k%d" % key: b"%d " % number * 2000 for key in range(keys)})
        data = PartitionProduceData(index=0, records=build(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    return latest


def _read(client: WireClient, topic: str) -> list[Record]:
    found: list[Record] = []
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        data = client.ask(request, 12).responses[0].partitions[0]
        assert data.error_code == 0
        for batch in read(bytes(data.records or b"")):
            found += batch.records()
            offset = batch.header.last_offset + 1
        if offset == data.high_watermark:
            return found


def _cleaned(node: ottla.Node, topic: str) -> int:
    offsets = read_offsets(HostDisk(), f"{node.data}/cleaner-offset-checkpoint")
    return offsets.get(TopicPartition(topic, 0), 0)


def test_a_compacted_topic_shrinks_while_it_is_served_and_stays_so_over_a_restart(node: ottla.Node) -> None:
    node.create_topic("small", settings=_COMPACT)
    with WireClient(node.bootstrap_servers) as client:
        latest = _fill(client, "small", 20, 80)
        _until(lambda: _cleaned(node, "small") > 1000)
        found = _read(client, "small")
        assert {each.key: each.value for each in found} == latest
        assert len(found) < 1000
        assert found[-1].offset == 20 * 80 - 1
    before = _cleaned(node, "small")
    node.restart()
    with WireClient(node.bootstrap_servers) as client:
        assert {each.key: each.value for each in _read(client, "small")} == latest
    assert _cleaned(node, "small") >= before
    # The next cleaning may be under way.
    _until(lambda: not [each for each in Path(node.data, "small-0").iterdir() if each.suffix in (".cleaned", ".swap")])


def test_a_topic_becomes_compacted_when_its_settings_say_so_and_one_that_is_not_stays_whole(node: ottla.Node) -> None:
    node.create_topic("whole", settings={"segment.bytes": 1 << 20})
    node.create_topic("other", settings=_COMPACT)
    with WireClient(node.bootstrap_servers) as client:
        _fill(client, "whole", 20, 40)
        _fill(client, "other", 20, 40)
        _until(lambda: _cleaned(node, "other") > 0)
        assert len(_read(client, "whole")) == 20 * 40


def test_a_topic_that_is_made_anew_while_its_namesake_is_cleaned_is_not_touched(node: ottla.Node) -> None:
    from ottla.wire.api.delete_topics import DeleteTopicsRequest

    with WireClient(node.bootstrap_servers) as client:
        for number in range(6):
            node.create_topic("again", settings=_COMPACT)
            latest = _fill(client, "again", 10 + number, 60)
            assert {each.key: each.value for each in _read(client, "again")} == latest
            answer = client.ask(DeleteTopicsRequest(topic_names=["again"], timeout_ms=1000), 5)
            assert answer.responses[0].error_code == 0


def test_a_cleaner_that_is_switched_off_does_nothing(tmp_path: Path) -> None:
    with ottla.Node(tmp_path, settings={"log.cleaner.backoff.ms": 1, "log.cleaner.enable": "false"}) as node:
        node.create_topic("t", settings=_COMPACT)
        with WireClient(node.bootstrap_servers) as client:
            _fill(client, "t", 20, 40)
            assert len(_read(client, "t")) == 20 * 40
        assert not Path(tmp_path, "cleaner-offset-checkpoint").exists()


def test_a_node_that_stops_in_the_middle_of_a_cleaning_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    # So slow that it is never done: 100 bytes a second.
    slow = {"log.cleaner.backoff.ms": 1, "log.cleaner.io.max.bytes.per.second": 100}
    with ottla.Node(tmp_path, settings=slow) as node:
        node.create_topic("t", settings=_COMPACT)
        with WireClient(node.bootstrap_servers) as client:
            latest = _fill(client, "t", 20, 40)
            _until(lambda: any(each.name == "ottla-cleaner" for each in threading.enumerate()))
            assert {each.key: each.value for each in _read(client, "t")} == latest
    assert not list(Path(tmp_path, "t-0").glob("*.cleaned"))
    with (
        ottla.Node(tmp_path, settings={"log.cleaner.enable": "false"}) as node,
        WireClient(node.bootstrap_servers) as client,
    ):
        assert len(_read(client, "t")) == 20 * 40


# ---- the process, from within


def _job(path: Path) -> tuple[Log, Job]:
    settings = LogSettings(cleanup_policy=frozenset({"compact"}))
    log = Log.open(HostDisk(), str(path / "t-0"), settings, now_ms=_NOW_MS)
    for number in range(3):
        log.append(build([(_NOW_MS, b"a", b"%d" % number, [])]), leader_epoch=0, now_ms=_NOW_MS)
        log.roll(_NOW_MS)
    return log, plan(log, 0, 3, _NOW_MS, keys_max=10, buffer_bytes=100)


def _told(job: Job, *answers: str) -> list[dict[str, object]]:
    asked = json.dumps({"job": job._asdict(), "bytes_per_second": 1e9}) + "\n"
    out = io.StringIO()
    converse(HostDisk(), io.StringIO(asked + "".join(answers)), out, lambda _: lambda count: None)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_process_says_what_is_ready_and_waits_for_the_answer(tmp_path: Path) -> None:
    log, job = _job(tmp_path)
    assert [list(each) for each in _told(job, "{}\n")] == [["ready"], ["end_offset", "read", "written"]]
    assert (tmp_path / "t-0" / "00000000000000000000.log.cleaned").exists()
    log.close()


def test_a_process_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    log, job = _job(tmp_path)
    assert _told(job) == [{"ready": [0, 1, 2]}]
    log.close()


def test_the_process_says_what_is_wrong_and_whether_it_will_stay_so(tmp_path: Path) -> None:
    log, job = _job(tmp_path)
    gone = job._replace(directory=str(tmp_path / "nowhere"))
    (told,) = _told(gone)
    assert told["corrupt"] is False
    log.segments[1].file.write(b"\xff", 30)
    (told,) = _told(job)
    assert told["corrupt"] is True
    assert "CRC" in str(told["error"])
    log.close()


def test_the_pace_is_that_of_the_bytes_and_idle_time_is_not_made_up_for() -> None:
    now = 100.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = CleanerPace(1000.0, lambda: now, sleep)
    pace(500)
    pace(1500)
    now += 60
    pace(1000)
    assert slept == [0.5, 1.5, 1.0]


def test_committed_offsets_are_compacted_too_and_the_latest_survive_a_restart(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.backoff.ms": 20,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 1 << 20,
    }
    partitions = 100
    with ottla.Node(tmp_path, settings=settings) as node:
        node.create_topic("t", partitions=partitions)
        with WireClient(node.bootstrap_servers) as client:
            client.ask(FindCoordinatorRequest(key="g"), 3)
            for number in range(40):
                committed = [
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=number, committed_metadata=f"{number} " * 200
                    )
                    for index in range(partitions)
                ]
                topics = [OffsetCommitRequestTopic(name="t", partitions=committed)]
                _until_loaded(client, OffsetCommitRequest(group_id="g", topics=topics))
            _until(lambda: _cleaned(node, "__consumer_offsets") > 20 * partitions)
        node.restart()
        with WireClient(node.bootstrap_servers) as client:
            log = Path(tmp_path, "__consumer_offsets-0")
            assert sum(each.stat().st_size for each in log.glob("*.log")) < 40 * partitions * 400
            asked = [OffsetFetchRequestTopic(name="t", partition_indexes=list(range(partitions)))]
            _until(lambda: client.ask(OffsetFetchRequest(group_id="g", topics=asked), 7).error_code == 0)
            answer = client.ask(OffsetFetchRequest(group_id="g", topics=asked), 7)
            assert [each.committed_offset for each in answer.topics[0].partitions] == [39] * partitions


def _until_loaded(client: WireClient, request: OffsetCommitRequest) -> None:
    """Commit; a coordinator that has only begun says so."""

    def committed() -> bool:
        codes = {each.error_code for topic in client.ask(request, 8).topics for each in topic.partitions}
        assert codes <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        return codes == {0}

    _until(committed)


class _Candidate:
    """A log as the cleaner looks at it: how dirty it is (None: there is nothing to clean), and whether it is due."""

    def __init__(self, name: str, ratio: float | None, *, due: bool = True, policy: str = "compact") -> None:
        self.tp, self.log, self.path, self.closed = TopicPartition(name, 0), self, f"/d/{name}-0", False
        self.settings = SimpleNamespace(cleanup_policy=frozenset(policy.split(",")))
        self.ratio, self.pending_removals = ratio, due


def _cleaner(hosted: Any = None, now_ms: int = 0, log_dirs: Any = None) -> cleaner.Cleaner:
    runtime: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: now_ms))
    unused: Any = None
    store: Any = SimpleNamespace(future=lambda tp: None)
    return cleaner.Cleaner(runtime, store, hosted, unused, log_dirs, unused, unused)


@pytest.mark.parametrize(
    ("logs", "chosen"),
    [
        ([], None),
        ([_Candidate("a", None)], None),
        ([_Candidate("a", 0.5, due=False)], None),
        ([_Candidate("a", 0.5, policy="delete")], None),
        ([_Candidate("a", 0.0)], "a"),
        ([_Candidate("a", 0.5), _Candidate("b", 0.7)], "b"),
        ([_Candidate("a", 0.7), _Candidate("b", 0.5)], "a"),
        ([_Candidate("a", 0.7), _Candidate("b", 0.7)], "a"),
        ([_Candidate("a", 0.9, due=False), _Candidate("b", 0.5)], "b"),
        ([_Candidate("a", None), _Candidate("b", 0.2), _Candidate("c", 0.9, policy="delete")], "b"),
        ([_Candidate("a", 0.9, policy="compact,delete"), _Candidate("b", 0.5)], "a"),
    ],
)
def test_the_dirtiest_log_that_is_due_is_cleaned(
    logs: list[_Candidate], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of = SimpleNamespace(
        cleanable=lambda log, _: None if log.ratio is None else SimpleNamespace(ratio=log.ratio),
        is_due=lambda _, log: log.pending_removals,
    )
    monkeypatch.setattr(cleaner, "plan", plan_of)
    hosted = {each.tp: each for each in logs}
    expected = None if chosen is None else TopicPartition(chosen, 0)
    assert _cleaner(hosted)._dirtiest() == expected
    moves: Any = _cleaner(hosted)
    moves._store.future = lambda tp: "a move" if tp == expected else None
    assert moves._dirtiest() != expected or expected is None
    # One that is being cleaned, and one that cannot be, are passed over.
    for passed_over in ("_runs", "_uncleanable"):
        one = _cleaner(hosted)
        found = next((each for each in logs if each.tp == expected), None)
        if found is not None:
            setattr(one, passed_over, {found.path: None} if passed_over == "_runs" else {found})
        assert one._dirtiest() != expected or expected is None
    # One whose last cleaning failed waits for the others, so that they have a turn, too.
    failed: Any = _cleaner(hosted)
    failed._failed = {each for each in logs if each.tp == expected}
    compacted = [each for each in logs if "compact" in each.settings.cleanup_policy]
    due = [each.tp for each in compacted if each.ratio is not None and each.pending_removals]
    assert (failed._dirtiest() != expected) is (len(due) > 1)
    assert failed._dirtiest() in due or not due


@pytest.mark.parametrize("fails", [False, True])
def test_a_swap_that_fails_is_told_to_the_process_and_of_its_directory(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(5, "Input/output error")

    def swapped(log: object, job: object, bases: list[int], now_ms: int) -> bool:
        if fails:
            raise error
        return (log, job, bases, now_ms) == ("log", "job", [0, 5], 77)

    monkeypatch.setattr(cleaner, "clean_swap", SimpleNamespace(swap=swapped))
    answers: list[bool] = []
    failed: list[tuple[Any, OSError]] = []
    log_dirs = SimpleNamespace(sync_failed=lambda *what: failed.append(what))
    run: Any = SimpleNamespace(
        tp=TopicPartition("t", 0), log="log", job="job", worker=SimpleNamespace(answer=answers.append)
    )
    _cleaner(now_ms=77, log_dirs=log_dirs).swap(run, [0, 5])
    assert answers == [not fails]
    assert failed == ([("log", error)] if fails else [])
