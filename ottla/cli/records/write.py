"""Writing records to a topic for `ottla produce` and `ottla import`, with an exact count when it ends early.

Rules:
- When it ends early (bad input, Ctrl-C, an error of the broker), it reports how many records are written for certain,
  counted from the first, and that `--skip` continues after them.
- A missing topic is an error, unless it may be created: then it is created once the first record has been parsed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.writing import InputRecord, Writer

if TYPE_CHECKING:
    from ottla.client import Producer

#: How often the bar moves.
_TICK_S = 0.1
#: Records between two looks at the clock when they come fast.
_STRIDE = 500


def ensure_topic(
    bootstrap: str, client: tuple[str, ...], topic: str, *, create: bool, partition: int | None = None
) -> bool:
    """Check that the topic exists and has this partition; with `create`, create a missing topic. Raises OttlaError.

    Returns whether it has been created.
    """
    from ottla.cli.option import admin, nearest_topic
    from ottla.client import NewTopic

    with admin(bootstrap, client) as ask:
        try:
            _check_partition(topic, partition, len(ask.describe_topic(topic).partitions))
            return False
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not create:
                hint = nearest_topic(ask, topic)
                stop = "" if hint.endswith("?") else ";"
                raise OttlaError(f"there is no topic {topic}{hint}{stop} use --create to create it") from error
        new = [NewTopic(topic)]
        if partition is not None:  # before creation, so that a wrong number leaves no topic behind
            would = ask.create_topics(new, validate_only=True)[topic]
            _check_partition(topic, partition, would.partitions, "would have")
        ask.create_topics(new).check()
        return True


def _check_partition(topic: str, partition: int | None, count: int, has: str = "has") -> None:
    if partition is not None and partition >= count:
        raise OttlaError(f"{topic} {has} no partition {partition} (expected 0 to {count - 1})")


def after_first_record(
    records: Iterator[InputRecord], prepare: Callable[[], None], bytes_max: int
) -> Iterator[InputRecord]:
    """Yield the records after calling `prepare` once the first is parsed, or the input has ended without one.

    OttlaError, before `prepare`, for a first record of more than `bytes_max`, which the producer would refuse.
    """
    first = next(records, None)
    if first is not None and (size := _size(first)) > bytes_max:
        raise OttlaError(f"the first record has {size:,} bytes, more than max.request.size={bytes_max}")
    prepare()
    if first is not None:
        yield first
        yield from records


def _size(record: InputRecord) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def stream(
    producer: Producer,
    topic: str,
    records: Iterator[InputRecord],
    *,
    size: int | None,
    skip: int,
    created: Callable[[], bool],
    as_json: bool,
) -> None:
    """Write records and report how many and how fast. `skip` records came before them and were skipped.

    `created` tells whether the topic was created for them: an error says that it stays.
    """
    from ottla.cli import screen

    began = time.monotonic()
    read = 0
    writer = Writer(producer, topic)
    try:
        with screen.progress(topic, size) as bar:
            ticked = began
            for record in records:
                writer.send(record)
                read += record.size
                if writer.sent % _STRIDE == 0 or time.monotonic() - ticked > _TICK_S:
                    writer.look()
                    ticked = time.monotonic()
                    rate = writer.sent / max(ticked - began, 1e-9)
                    bar.update(bar.task_ids[0], completed=read, count=writer.sent, rate=f"{rate:,.0f}/s")
            producer.flush()
            writer.finish()
    except KeyboardInterrupt:
        writer.settle()
        screen.note(_so_far(writer, skip))
        raise
    except (OttlaError, KafkaError) as error:
        writer.settle()
        # Not deleted: others may have found it and written to it meanwhile.
        stays = f"; the new topic {topic} stays" if created() else ""
        raise OttlaError(f"{screen.in_words(error)}; {_so_far(writer, skip)}{stays}") from error
    seconds = max(time.monotonic() - began, 1e-9)
    if as_json:
        screen.document({"topic": topic, "records": writer.written, "bytes": read, "seconds": round(seconds, 3)})
        return
    speed = f" ({writer.written / seconds:,.0f}/s)" if writer.written >= 1000 else ""
    screen.done(f"{_many(writer.written)} written to {topic} in {seconds:.2f} s{speed}")


def _many(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _so_far(writer: Writer, skip: int) -> str:
    text = f"{_many(writer.written)} {'is' if writer.written == 1 else 'are'} written"
    if writer.sent > writer.written:
        text += f" for certain (up to {writer.sent - writer.written:,} more may be)"
    return text + (f"; continue with --skip {skip + writer.written}" if skip + writer.written else "")


def chosen(records: Iterator[InputRecord], skip: int, limit: int | None) -> Iterator[InputRecord]:
    """The records after the first `skip`, at most `limit`. OttlaError if there are fewer than `skip`."""
    skipped = sum(1 for _ in islice(records, skip))
    if skipped < skip:
        raise OttlaError(f"--skip {skip}: the input has only {_many(skipped)}")
    return islice(records, limit)


def summarize(records: Iterator[InputRecord]) -> dict[str, Any]:
    """Return what would be written: counts, and the first three records."""
    count = keys = nulls = size = 0
    first: list[dict[str, Any]] = []
    for record in records:
        count += 1
        keys += record.key is not None
        nulls += record.value is None
        size += len(record.value or b"") + len(record.key or b"")
        if len(first) < 3:
            first.append(
                {
                    "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
                    "value": None if record.value is None else record.value.decode(errors="backslashreplace"),
                    "headers": [
                        [name, None if content is None else content.decode(errors="backslashreplace")]
                        for name, content in record.headers
                    ],
                }
            )
    return {"records": count, "with_key": keys, "tombstones": nulls, "bytes": size, "first": first}
