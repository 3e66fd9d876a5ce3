"""The checks and changes that only some topics' settings ask of a batch: keys, timestamps, LogAppendTime, codec.

Rules:
- `rewrite_batch` is called only if `rewrites_every_batch` says so, if the batch claims LogAppendTime, or if its
  maximum timestamp is too late.
- Single records are checked only where a setting needs it: keys on a compacted topic, and timestamps if
  `message.timestamp.before.max.ms` is set or the batch's maximum timestamp is too late. Otherwise the header, which the
  CRC covers, is trusted (decision 0342).
- LogAppendTime and a new codec need a new header and CRC; the records are never re-encoded.
"""

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.ports import Buffer
from ottla.log.setting import UNLIMITED, LogSettings
from ottla.wire.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    header_at,
    rewrite,
)
from ottla.wire.codec import codec_of
from ottla.wire.walk import walk

#: The most records of a batch that are checked one by one on the loop: some 70 ms.
RECORDS_MAX = 100_000
#: The most uncompressed bytes of a batch whose records are checked or recompressed on the loop; `max.message.bytes` if
#: that is larger.
_PLAIN_BYTES_MAX = 16 << 20


def rewrites_every_batch(settings: LogSettings) -> bool:
    """Must every batch of a topic with these settings pass through `rewrite_batch`?"""
    return (
        "compact" in settings.cleanup_policy
        or settings.log_append_time
        or settings.timestamp_before_max_ms != UNLIMITED
        or settings.codec is not None
    )


def rewrite_batch(data: Buffer, settings: LogSettings, now_ms: int, *, from_client: bool) -> Buffer:
    """The batch in the form that the topic's settings ask for; KafkaError if they do not allow it."""
    header = header_at(data)
    codec = codec_of(header.attributes)
    is_control = bool(header.attributes & CONTROL)
    _check_records(data, header, settings, now_ms, from_client)
    attributes = header.attributes
    max_timestamp = header.max_timestamp
    if settings.log_append_time:
        if from_client and attributes & LOG_APPEND_TIME:
            raise _invalid_timestamp("a producer must not set the timestamp type to LogAppendTime")
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
    elif attributes & LOG_APPEND_TIME:
        if from_client and max_timestamp == NO_TIMESTAMP:
            raise _invalid_timestamp("a producer must not set the timestamp type to LogAppendTime")
        attributes &= ~LOG_APPEND_TIME
    target = None
    if settings.codec is not None and settings.codec is not codec and not is_control:
        target = settings.codec
    if target is None and attributes == header.attributes and max_timestamp == header.max_timestamp:
        return data
    level = settings.level(target) if target is not None else None
    rewritten = rewrite(
        data,
        header,
        attributes=attributes,
        max_timestamp=max_timestamp,
        codec=target,
        level=level,
        bytes_max=_bytes_max(settings),
    )
    if target is not None and len(rewritten) > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(rewritten)} bytes as {target.name.lower()}, more than {settings.max_message_bytes}",
        )
    return rewritten


def _bytes_max(settings: LogSettings) -> int:
    return max(_PLAIN_BYTES_MAX, settings.max_message_bytes)


def _check_records(data: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int, from_client: bool) -> None:
    before_max_ms = settings.timestamp_before_max_ms
    after_max_ms = settings.timestamp_after_max_ms
    create_time = not settings.log_append_time
    compact = "compact" in settings.cleanup_policy
    early = create_time and header.max_timestamp - now_ms > after_max_ms
    if not (compact or early) and (before_max_ms == UNLIMITED or not create_time):
        return
    if header.count > RECORDS_MAX:
        why = f"the batch has {header.count} records, but the topic's settings allow at most {RECORDS_MAX}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    bytes_max = _bytes_max(settings)
    fixed = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    code = ErrorCode.INVALID_RECORD
    wrong: list[tuple[int, str]] = []
    try:
        for index, delta, has_key in walk(header, data, whole_records=from_client, bytes_max=bytes_max):
            timestamp = header.base_timestamp + delta if fixed is None else fixed
            why = ""
            if compact and not has_key:
                why = "the record has no key, and the topic is compacted"
            elif create_time and timestamp != NO_TIMESTAMP:
                age_ms = now_ms - timestamp
                if age_ms > before_max_ms or -age_ms > after_max_ms:
                    code = ErrorCode.INVALID_TIMESTAMP
                    why = f"the timestamp {timestamp} is outside of [{now_ms - before_max_ms}, {now_ms + after_max_ms}]"
            if why:
                wrong.append((index, why))
    except KafkaError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            # Apache Kafka answers a malformed compressed stream with this code.
            raise RefusedBatch(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
        raise RefusedBatch(error.code, error.message) from error
    if wrong:
        index, why = wrong[0]
        raise RefusedBatch(code, f"{len(wrong)} records of the batch are refused; record {index}: {why}", wrong)


def _invalid_timestamp(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, message)
