"""Polls with a record that cannot be read, while its dead letter is written, refused or interrupted. No broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

from ottla.client import (
    AsyncConsumer,
    AsyncShareConsumer,
    Consumer,
    OttlaError,
    RecordDeserializationError,
    ShareRecord,
    TopicPartition,
    serde,
)
from ottla.client.acknowledgement import Acknowledge
from ottla.client.consumer.position import Chunk
from ottla.client.decode import DeadLetters
from ottla.kernel.client_error import AuthenticationFailed, ClientClosed
from ottla.wire.batch import build

ONE = TopicPartition("t", 0)
_SETTINGS: dict[str, Any] = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "enable.auto.commit": False,
    "on.decode.error": "dead-letter",
    "dead.letter.topic": "dead",
    "reconnect.backoff.ms": 60_000,
}
_GOOD = b'{"n":1}'
#: Offsets 5 to 8; 7 cannot be read.
_DATA = build([(1, None, value, ()) for value in (_GOOD, _GOOD, b"oops", _GOOD)], base_offset=5)
#: Offset 9 alone, which cannot be read either.
_ALONE = build([(1, None, b"oops", ())], base_offset=9)


class Interrupt(BaseException):
    """As Ctrl-C, which the test run would take for its own."""


class Letters:
    """In place of the producer of dead letters: what it was made for, and what comes over it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trouble: BaseException | None = None) -> None:
        self.made: list[DeadLetters] = []
        self.written: list[list[int]] = []
        self.trouble = trouble
        self.held: list[object] = []
        self.watch: Callable[[], object] = lambda: None

        async def write(letters: DeadLetters, errors: Sequence[RecordDeserializationError]) -> None:
            if letters not in self.made:
                self.made.append(letters)
            self.written.append([error.offset for error in errors])
            self.held.append(self.watch())
            if self.trouble is not None:
                raise self.trouble

        monkeypatch.setattr(DeadLetters, "write", write)


def _buffer(half: AsyncConsumer[Any, Any], *chunks: bytes) -> None:
    with half._lock:
        state = half._positions[ONE]
        state.seek(5)
        for data in chunks:
            offset = state.fetch_offset
            assert state.fetched(Chunk(data, offset, None, check_crcs=True), offset)
        half._fetcher.all_positioned = True


class Program:
    """A consumer of one kind: it polls, and says at which offsets there were records."""

    def __init__(self, kind: str, *, table: bool) -> None:
        self.table = table
        more = {} if table else {"value.deserializer": lambda data: {b'{"n":1}': 1}[data]}
        self.asynchronous = kind == "asynchronous"
        make: Any = AsyncConsumer if self.asynchronous else Consumer
        self.consumer = make({**_SETTINGS, **more})
        half = self.consumer if self.asynchronous else self.consumer._async
        self.half: AsyncConsumer[Any, Any] = half
        self.consumer.assign([ONE])

    async def poll(self) -> list[int]:
        if self.table:
            found = self.consumer.poll_table(0, value_serde=serde.json({"n": pa.int64()}))
            rows: list[int] = (await found if self.asynchronous else found)["offset"].to_pylist()
            return rows
        records = self.consumer.poll(0)
        return [each.offset for each in (await records if self.asynchronous else records)]

    @property
    def position(self) -> int | None:
        return self.half._positions[ONE].position


KINDS = [(kind, table) for kind in ("asynchronous", "synchronous") for table in (False, True)]


def scene(play: Callable[[Program], Awaitable[None]], kind: str, table: bool) -> None:
    async def run() -> None:
        program = Program(kind, table=table)
        try:
            await play(program)
        finally:
            closing = program.consumer.close()
            if closing is not None:
                await closing

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "table"), KINDS)
def test_the_others_are_given_when_its_letter_is_written(
    kind: str, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(monkeypatch)

    async def play(program: Program) -> None:
        letters.watch = lambda: dict(program.half._held)
        _buffer(program.half, _DATA, _ALONE)
        seen: list[int] = []
        while program.position != 10:
            seen += await program.poll()
        assert seen == [5, 6, 8]
        assert [offset for some in letters.written for offset in some] == [7, 9]
        assert len(letters.made) == 1, "one producer for all of them"
        assert all(held in ({ONE: 5}, {ONE: 9}) for held in letters.held), "no commit passes it meanwhile"
        assert program.half._held == {}

    scene(play, kind, table)


@pytest.mark.parametrize(("kind", "table"), KINDS)
def test_a_letter_that_is_refused_keeps_the_position_before_it(
    kind: str, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(monkeypatch, OttlaError("the dead letter topic is full"))

    async def play(program: Program) -> None:
        _buffer(program.half, _DATA)
        assert await program.poll() == [5, 6]
        assert program.position == 7
        with pytest.raises(OttlaError, match="the dead letter topic is full"):
            await program.poll()
        assert program.position == 7
        # Nothing of it is left when it is alone in its poll.
        letters.trouble = OttlaError("still full")
        with program.half._lock:
            state = program.half._positions[ONE]
            state.seek(9)
            state.fetched(Chunk(_ALONE, 9, None, check_crcs=True), 9)
        with pytest.raises(OttlaError, match="still full"):
            await program.poll()
        assert program.position == 9 and program.half._held == {}

    scene(play, kind, table)


@pytest.mark.parametrize(("kind", "table"), KINDS)
def test_an_interrupt_while_a_letter_is_written_gives_all_of_the_poll_back(
    kind: str, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Letters(monkeypatch, asyncio.CancelledError() if kind == "asynchronous" else None)

    async def play(program: Program) -> None:
        if kind == "synchronous":

            def run(work: Any, timeout: object = None) -> Any:
                if work.__name__ == "_try_dead_letters":
                    work.close()
                    raise Interrupt
                return good(work)

            good = program.consumer._run
            monkeypatch.setattr(program.consumer, "_run", run)
        _buffer(program.half, _DATA)
        with pytest.raises((asyncio.CancelledError, Interrupt)):
            await program.poll()
        assert program.position == 5

    scene(play, kind, table)


@pytest.mark.parametrize("table", [False, True])
def test_an_interrupt_behind_a_written_letter_leaves_the_position_behind_it(
    table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(monkeypatch)

    async def play(program: Program) -> None:
        def run(work: Any, timeout: object = None) -> Any:
            if work.__name__ == "_next" and letters.written:
                work.close()
                raise Interrupt
            return good(work)

        good = program.consumer._run
        monkeypatch.setattr(program.consumer, "_run", run)
        with program.half._lock:
            state = program.half._positions[ONE]
            state.seek(9)
            state.fetched(Chunk(_ALONE, 9, None, check_crcs=True), 9)
        with pytest.raises(Interrupt):
            await program.poll()
        assert letters.written == [[9]] and program.position == 10

    scene(play, "synchronous", table)


@pytest.mark.parametrize("kind", ["asynchronous", "synchronous"])
def test_a_serde_that_breaks_gives_all_of_the_table_back(kind: str) -> None:
    async def play(program: Program) -> None:
        class Broken:
            def decode(self, _: object) -> object:
                raise ZeroDivisionError

            def __getattr__(self, name: str) -> Any:
                return getattr(serde.json({"n": pa.int64()}), name)

        _buffer(program.half, _DATA)
        with pytest.raises(ZeroDivisionError):
            program.half.table(program.half.take_bytes(10), None, cast(Any, Broken()))
        assert cast(Any, program).position == 5

    scene(play, kind, True)


# ---- what else a poll raises


@pytest.mark.parametrize(("kind", "table"), KINDS)
def test_a_poll_says_what_the_program_has_to_mend(kind: str, table: bool) -> None:
    async def play(program: Program) -> None:
        cast(Any, program.half._fetcher).refusal = AuthenticationFailed("h:1 refused")
        with pytest.raises(AuthenticationFailed, match="h:1 refused"):
            await program.poll()
        assert cast(Any, program.half._fetcher).refusal is None, "once"
        program.half._positions.clear()
        with pytest.raises(OttlaError, match=r"^this consumer has no topics to read: subscribe or assign first$"):
            await program.poll()
        closing = program.consumer.close()
        if closing is not None:
            await closing
        with pytest.raises(ClientClosed, match=r"^this consumer is closed$"):
            await program.poll()

    scene(play, kind, table)


def test_pushed_metrics_are_labelled_by_group_and_rack() -> None:
    async def run() -> None:
        more = {"client.rack": "r", "group.instance.id": "i"}
        consumer: AsyncConsumer[Any, Any] = AsyncConsumer({**_SETTINGS, **more})
        assert consumer._labels() == {
            "client_rack": "r",
            "group_id": "g",
            "group_instance_id": "i",
            "group_member_id": "",
        }
        await consumer.close()
        plain: AsyncConsumer[Any, Any] = AsyncConsumer("127.0.0.1:1")
        assert set(plain._labels().values()) == {""}
        await plain.close()

    asyncio.run(run())


# ---- share consumers


def _shared(offset: int, value: bytes) -> ShareRecord[Any, Any]:
    return ShareRecord("t", 0, offset, 1, None, value, (), 0, 1)


@pytest.mark.parametrize("trouble", [None, OttlaError("full"), asyncio.CancelledError()])
def test_a_share_consumer_gives_the_others_and_says_what_became_of_it(
    trouble: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters(monkeypatch, trouble)
    reject, release = int(Acknowledge.REJECT), int(Acknowledge.RELEASE)

    async def run() -> None:
        settings = {name: value for name, value in _SETTINGS.items() if name != "enable.auto.commit"}
        more = {"value.deserializer": lambda data: {_GOOD: 1}[data]}
        async with AsyncShareConsumer({**settings, **more}) as consumer:
            raw = [_shared(5, _GOOD), _shared(6, b"oops"), _shared(7, _GOOD)]
            fetcher, ready = consumer._fetcher, consumer.acknowledgements.ready
            if isinstance(trouble, asyncio.CancelledError):
                with pytest.raises(asyncio.CancelledError):
                    await consumer._read(raw)
                assert fetcher.records == raw and not ready, "the next poll returns them"
                fetcher.records = []
                return
            assert [each.offset for each in await consumer._read(raw)] == [5, 7]
            assert ready == {ONE: {6: reject if trouble is None else release}}
            assert fetcher.error is trouble
            fetcher.error = None
            if trouble is None:
                assert await consumer._read(raw[1:2]) == []
                assert len(letters.made) == 1
            else:
                with pytest.raises(OttlaError, match="full"):
                    await consumer._read(raw[1:2])

    asyncio.run(run())
