"""Long work of the tools that ends early: what is done, what may be done, where to go on; and the bar meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli import screen
from ottla.cli.ottla import partition
from ottla.cli.records import write
from ottla.client import Admin, ErrorCode, KafkaError, Producer, TopicPartition
from ottla.kernel.error import OttlaError
from ottla.operations.topics import copy
from ottla.operations.writing import InputRecord
from tests.cli.test_loss import values
from tests.cli.tool import Tool


class Bars:
    """The bars of progress that a tool shows: what each was made for, and each of its updates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.updates: list[dict[str, Any]] = []
        monkeypatch.setattr(screen, "progress", self._made)

    @contextmanager
    def _made(self, *arguments: Any) -> Iterator[Any]:
        self.made.append(arguments)
        yield SimpleNamespace(task_ids=[0], update=lambda _, **more: self.updates.append(more))


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Bars:
    return Bars(monkeypatch)


# ---- produce and import

FAILED = KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, "too large")


class Broker:
    """A producer whose records are acknowledged at once, never (False), or fail."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = iter(answers)
        self.flushed = False

    def send(self, *_: Any, **__: Any) -> Any:
        answer = next(self._answers, True)

        def result() -> None:
            if isinstance(answer, BaseException):
                raise answer

        return SimpleNamespace(done=answer is not False, result=result)

    def flush(self) -> None:
        self.flushed = True


def record(value: bytes = b"v", size: int = 10) -> InputRecord:
    return InputRecord(value, None, [], None, None, size)


def given(count: int, end: BaseException | None = None) -> Iterator[InputRecord]:
    for _ in range(count):
        yield record()
    if end is not None:
        raise end


def stream(
    broker: Broker,
    records: Iterator[InputRecord],
    *,
    skip: int = 0,
    created: bool = False,
    as_json: bool = False,
) -> None:
    producer: Any = broker
    write.stream(producer, "t", records, size=100, skip=skip, created=lambda: created, as_json=as_json)


@pytest.mark.parametrize(
    ("answers", "count", "skip", "said"),
    [
        ([], 0, 0, "0 records are written"),
        ([], 0, 7, "0 records are written; continue with --skip 7"),
        ([], 1, 0, "1 record is written; continue with --skip 1"),
        ([], 3, 7, "3 records are written; continue with --skip 10"),
        ([True, FAILED], 3, 7, "1 record is written for certain (up to 2 more may be); continue with --skip 8"),
        ([FAILED], 1, 0, "0 records are written for certain (up to 1 more may be)"),
        ([], 1500, 0, "1,500 records are written; continue with --skip 1500"),
    ],
)
def test_ctrl_c_tells_what_is_written_and_where_to_go_on(
    capsys: pytest.CaptureFixture[str], answers: list[Any], count: int, skip: int, said: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        stream(Broker(answers), given(count, KeyboardInterrupt()), skip=skip)
    assert capsys.readouterr() == ("", f"ottla: {said}\n")


@pytest.mark.parametrize(("created", "stays"), [(True, "; the new topic t stays"), (False, "")])
def test_input_that_becomes_wrong_tells_what_is_written_before_it(created: bool, stays: str) -> None:
    with pytest.raises(OttlaError) as raised:
        stream(Broker([]), given(2, OttlaError("line 3 is wrong")), created=created)
    assert str(raised.value) == f"line 3 is wrong; 2 records are written; continue with --skip 2{stays}"
    # The last record fails only when it is waited for.
    with pytest.raises(OttlaError) as raised:
        stream(Broker([True, FAILED]), given(2), created=created)
    certain = "1 record is written for certain (up to 1 more may be); continue with --skip 1"
    assert str(raised.value) == f"too large (RECORD_LIST_TOO_LARGE); {certain}{stays}"


def test_what_was_written_is_told_with_its_rate_when_that_says_something(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bars: Bars
) -> None:
    for count, told in ((1, "1 record written to t in 2.00 s"), (999, "999 records written to t in 2.00 s")):
        monkeypatch.setattr(write, "time", SimpleNamespace(monotonic=iter([10.0, *[10.0] * count, 12.0]).__next__))
        broker = Broker([])
        stream(broker, given(count))
        assert capsys.readouterr() == ("", f"{told}\n")
        assert broker.flushed
    moments = iter([10.0, *[10.0] * 998, 10.0, 12.0])
    monkeypatch.setattr(write, "time", SimpleNamespace(monotonic=lambda: next(moments, 12.0)))
    stream(Broker([]), given(1000))
    assert capsys.readouterr() == ("", "1,000 records written to t in 2.00 s (500/s)\n")
    monkeypatch.setattr(write, "time", SimpleNamespace(monotonic=iter([10.0, 10.0, 11.5]).__next__))
    stream(Broker([]), given(1), as_json=True)
    assert capsys.readouterr() == ('{"topic": "t", "records": 1, "bytes": 10, "seconds": 1.5}\n', "")


def test_the_bar_moves_every_tenth_of_a_second_or_five_hundred_records(
    monkeypatch: pytest.MonkeyPatch, bars: Bars
) -> None:
    moments = iter([10.0, 10.05, 10.1, 10.3, 10.35])
    monkeypatch.setattr(write, "time", SimpleNamespace(monotonic=lambda: next(moments, 14.0)))
    stream(Broker([False, False]), given(4))
    # The third and the fourth record come after more than a tenth; the rate is of the time since the beginning.
    assert bars.made == [("t", 100)]
    assert bars.updates == [
        {"completed": 30, "count": 3, "rate": "9/s"},
        {"completed": 40, "count": 4, "rate": "1/s"},
    ]
    bars.updates.clear()
    monkeypatch.setattr(write, "time", SimpleNamespace(monotonic=lambda: 10.0))
    stream(Broker([]), given(1001))
    assert [(each["completed"], each["count"]) for each in bars.updates] == [(5000, 500), (10_000, 1000)]


# ---- the topic and the input of records


@contextmanager
def asking(client: Any) -> Iterator[Any]:
    yield client


def topic_of(count: int) -> Any:
    return SimpleNamespace(partitions=[None] * count)


@pytest.mark.parametrize(("number", "refused"), [(None, None), (0, None), (2, None), (3, 3), (9, 9)])
def test_a_partition_must_be_there(monkeypatch: pytest.MonkeyPatch, number: int | None, refused: int | None) -> None:
    client = Mock(describe_topic=Mock(return_value=topic_of(3)))
    monkeypatch.setattr("ottla.cli.option.admin", lambda *_: asking(client))
    if refused is None:
        assert write.ensure_topic("b", (), "t", create=True, partition=number) is False
    else:
        with pytest.raises(OttlaError, match=rf"^t has no partition {refused} \(expected 0 to 2\)$"):
            write.ensure_topic("b", (), "t", create=True, partition=number)
    assert not client.create_topics.called


def test_a_topic_is_created_when_that_is_said_and_its_partition_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    client = Mock(describe_topic=Mock(side_effect=missing))
    client.list_topics.return_value = [SimpleNamespace(name="topical")]
    monkeypatch.setattr("ottla.cli.option.admin", lambda *_: asking(client))
    for name, hint in (
        ("topica", "; did you mean topical? use --create to create it"),
        ("x", "; `ottla topics` lists the topics; use --create to create it"),
    ):
        with pytest.raises(OttlaError) as raised:
            write.ensure_topic("b", (), name, create=False)
        assert str(raised.value) == f"there is no topic {name}{hint}"
    assert not client.create_topics.called
    assert write.ensure_topic("b", (), "t", create=True) is True
    assert [each.kwargs for each in client.create_topics.call_args_list] == [{}]
    client.create_topics.reset_mock()
    client.create_topics.return_value = {"t": SimpleNamespace(partitions=2)}
    with pytest.raises(OttlaError, match=r"^t would have no partition 2 \(expected 0 to 1\)$"):
        write.ensure_topic("b", (), "t", create=True, partition=2)
    assert [each.kwargs for each in client.create_topics.call_args_list] == [{"validate_only": True}]
    client.describe_topic.side_effect = refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as kept:
        write.ensure_topic("b", (), "t", create=True)
    assert kept.value is refused


@pytest.mark.parametrize(("size", "fits"), [(9, True), (10, True), (11, False)])
def test_a_first_record_that_is_too_large_comes_to_no_topic(size: int, fits: bool) -> None:
    prepared: list[bool] = []
    first = InputRecord(b"v" * (size - 5), b"k", [("h", b"12"), ("i", None)], None, None, 0)
    found = write.after_first_record(iter([first, record()]), lambda: prepared.append(True), 10)
    if fits:
        assert [len(each.value or b"") for each in found] == [size - 5, 1]
        assert prepared == [True]
    else:
        with pytest.raises(OttlaError, match=r"^the first record has 11 bytes, more than max\.request\.size=10$"):
            next(found)
        assert prepared == []
    assert list(write.after_first_record(iter([]), lambda: prepared.append(False), 10)) == []
    assert prepared[-1] is False


def test_records_are_skipped_and_limited() -> None:
    def chosen(skip: int, limit: int | None) -> list[int]:
        return [each.size for each in write.chosen((record(size=number) for number in range(5)), skip, limit)]

    assert chosen(0, None) == [0, 1, 2, 3, 4]
    assert chosen(2, 2) == [2, 3]
    assert chosen(5, None) == []
    for many, text in ((5, "5 records"), (1, "1 record")):
        with pytest.raises(OttlaError, match=rf"^--skip 6: the input has only {text}$"):
            write.chosen((record() for _ in range(many)), 6, None)


def test_a_rehearsal_counts_what_would_be_written() -> None:
    records = [
        InputRecord(b"v\xff", b"k\xff", [("h", b"\xff"), ("i", None)], None, None, 0),
        InputRecord(None, b"key", [], None, None, 0),
        InputRecord(b"abc", None, [], None, None, 0),
        InputRecord(b"d", None, [], None, None, 0),
    ]
    assert write.summarize(iter(records)) == {
        "records": 4,
        "with_key": 2,
        "tombstones": 1,
        "bytes": 2 + 2 + 3 + 3 + 1,
        "first": [
            {"key": "k\\xff", "value": "v\\xff", "headers": [["h", "\\xff"], ["i", None]]},
            {"key": "key", "value": None, "headers": []},
            {"key": None, "value": "abc", "headers": []},
        ],
    }


# ---- topics copy


@pytest.fixture
def ends_early(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Lets a copy end so after its first poll with records."""

    def ends(error: BaseException) -> None:
        def polls(*arguments: Any) -> Iterator[Any]:
            for records in real(*arguments):
                yield records
                if records:
                    raise error

        monkeypatch.setattr(copy, "polls", polls)

    real = vars(copy)["polls"]
    return ends


def fill(bootstrap: str, topic: str, *counts: int) -> None:
    with Producer(bootstrap) as producer:
        for number, count in enumerate(counts):
            for each in range(count):
                producer.send(topic, str(each), partition=number)


def test_a_copy_that_ends_early_says_where_to_go_on(
    tool: Tool, bootstrap: str, topic: str, ends_early: Callable[[BaseException], None], bars: Bars
) -> None:
    fill(bootstrap, topic, 3)
    target = f"{topic}_target"
    told = "3 records copied; continue with --append --from 0:3,1:0"
    ends_early(KeyboardInterrupt())
    said = tool("topics", "copy", topic, target, "--create")
    assert (said.code, said.out, said.err.strip()) == (130, "", f"ottla: {told}")
    ends_early(OttlaError("it is over"))
    said = tool("topics", "copy", topic, target, "--append")
    assert (said.code, said.out, said.err) == (1, "", f"ottla: it is over; {told}\n")
    assert values(bootstrap, target) == [b"0", b"1", b"2"] * 2
    assert bars.made == [(target, 3), (target, 3)]
    assert bars.updates
    assert all(each["completed"] == each["count"] for each in bars.updates)


def test_a_copy_counts_records_that_may_be_there(
    tool: Tool, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bootstrap, topic, 2)
    assert tool("topics", "create", f"{topic}_target", "-p", "2").code == 0

    def run(self: copy.TopicCopy, _: Any) -> None:
        self.has_begun, self.written = True, 1
        self.reached[TopicPartition(topic, 0)] = 1
        self._sent.extend([(TopicPartition(topic, 0), 1)] * 1200)
        raise FAILED

    monkeypatch.setattr(copy.TopicCopy, "run", run)
    said = tool("topics", "copy", topic, f"{topic}_target")
    more = "for certain (up to 1,200 more may be); continue with --append --from 0:1,1:0"
    assert said == (1, "", f"ottla: too large (RECORD_LIST_TOO_LARGE); 1 record copied {more}\n")
    # One whose clients cannot be made has copied nothing: there is nothing to go on with.
    monkeypatch.setattr(copy.TopicCopy, "run", lambda *_: (_ for _ in ()).throw(FAILED))
    assert tool("topics", "copy", topic, f"{topic}_target").err == "ottla: too large (RECORD_LIST_TOO_LARGE)\n"


def test_a_copy_to_a_topic_of_another_size_goes_by_keys_and_within_its_bounds(
    tool: Tool, bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 5, 5)
    with Admin(bootstrap) as admin:
        admin.create_topic(f"{topic}_one", 1)
    said = tool("topics", "copy", topic, f"{topic}_one", "--from", "1", "--until", "4", "--json")
    assert (said.code, said.json) == (0, {"topic": f"{topic}_one", "records": 6})
    assert sorted(values(bootstrap, f"{topic}_one"), key=str) == [b"1", b"1", b"2", b"2", b"3", b"3"]
    said = tool("topics", "copy", topic, f"{topic}_one", "--append", "--from", "0:4,1:5")
    assert said == (0, "", f"1 record copied to {topic}_one, to partitions by their keys\n")


def test_a_topic_is_not_copied_to_itself(tool: Tool, bootstrap: str, topic: str) -> None:
    for more in ((), ("--to", bootstrap, "-b", bootstrap)):
        said = tool("topics", "copy", topic, topic, *more)
        assert (said.code, said.err.splitlines()[0]) == (2, "ottla: a topic cannot be copied to itself")
    # Another name for the cluster is another cluster: the target has its records already.
    said = tool("topics", "copy", topic, topic, "--to", bootstrap.replace("127.0.0.1", "localhost"), "-b", bootstrap)
    assert said.code == 0, said.err


# ---- moves of partitions


def test_a_move_is_followed_to_its_end_or_to_ctrl_c(monkeypatch: pytest.MonkeyPatch, bars: Bars) -> None:
    hints: list[str] = []
    waits: list[float] = []
    monkeypatch.setattr(screen, "hint", hints.append)
    monkeypatch.setattr(partition, "time", SimpleNamespace(sleep=waits.append))
    assert partition.follow_moves("moving t", 5, iter([4, 4, 1, 0]).__next__) == 0
    assert bars.made == [("moving t", 5, "partitions")]
    assert [each["completed"] for each in bars.updates] == [1, 1, 4]
    assert [each["count"] for each in bars.updates] == [1, 1, 4]
    assert (waits, hints) == ([0.2] * 3, [])

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(partition, "time", SimpleNamespace(sleep=interrupted))
    assert partition.follow_moves("moving t", 5, iter([4]).__next__) == 4
    assert hints == ["the move continues; `ottla partitions moves` shows its progress"]
