"""kafka-transactions: transactional ids, producers, and hanging transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.cli.kafka.metadata.metadata_quorum import table
from ottla.cli.kafka.program.argument import Command, Words, tool
from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.option import Option, int32, int64, partition_id
from ottla.cli.kafka.program.tool import Failed, admin, load
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.hanging import SearchFailed, find_hanging

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

_TOPIC = Option("topic", "Topic.", "TOPIC", required=True)
_PARTITION = Option("partition", "Partition.", "PARTITION", partition_id, required=True)
COMMANDS = (
    Command(
        "list",
        "List transactional ids.",
        (
            Option("duration-filter", "Only transactions open for longer than this (ms).", "DURATION_FILTER", int64),
            Option(
                "transactional-id-pattern", "Only ids that match this regular expression.", "TRANSACTIONAL_ID_PATTERN"
            ),
        ),
    ),
    Command(
        "describe",
        "Describe a transactional id.",
        (Option("transactional-id", "Transactional id.", "TRANSACTIONAL_ID", required=True),),
    ),
    Command(
        "describe-producers",
        "Describe the producers of a partition.",
        (Option("broker-id", "Ask this replica instead of the leader.", "BROKER_ID", int32), _TOPIC, _PARTITION),
    ),
    Command(
        "abort",
        "Abort a hanging transaction.",
        (
            _TOPIC,
            _PARTITION,
            Option("start-offset", "First offset of the transaction.", "START_OFFSET", int64),
            Option("producer-id", "Producer id, for brokers before 3.0.", "PRODUCER_ID", int64),
            Option("producer-epoch", "Producer epoch, for brokers before 3.0.", "PRODUCER_EPOCH", int32),
            Option("coordinator-epoch", "Coordinator epoch, for brokers before 3.0.", "COORDINATOR_EPOCH", int32),
        ),
    ),
    Command(
        "find-hanging",
        "Find hanging transactions.",
        (
            Option("broker-id", "Search this broker.", "BROKER_ID", int32),
            Option(
                "max-transaction-timeout",
                "Only transactions open for more minutes than this.",
                "MAX_TRANSACTION_TIMEOUT",
                int32,
                default=15,
            ),
            Option("topic", "Search this topic.", "TOPIC"),
            Option("partition", "Search this partition.", "PARTITION", partition_id),
        ),
    ),
    Command(
        "forceTerminateTransaction",
        "Abort the open transaction of a transactional id.",
        (Option("transactionalId", "Transactional id.", "TRANSACTIONALID", required=True),),
    ),
)


def main() -> None:
    """The console script."""
    tool(
        "kafka-transactions.sh",
        "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect "
        "and recover from hanging transactions.",
        _run,
        options=(
            Option("bootstrap-server", "Brokers to connect to first.", "host:port", required=True),
            Option("command-config", "Properties file for the client.", "FILE"),
        ),
        commands=COMMANDS,
    )


def _run(words: Words) -> int:
    properties = load(words["command-config"]) if words["command-config"] else {}
    with admin(words["bootstrap-server"], properties) as client:
        {
            "list": _list,
            "describe": _describe,
            "describe-producers": _describe_producers,
            "abort": _abort,
            "find-hanging": _find_hanging,
            "forceTerminateTransaction": _terminate,
        }[words.command](client, words)
    return 0


def _failed(what: str, error: KafkaError) -> Failed:
    return Failed(f"{what}: {message(error)}. Enable debug logging for additional detail.")


def _list(client: Admin, words: Words) -> None:
    duration = words["duration-filter"]
    try:
        transactions = client.list_transactions(
            duration_ms=-1 if duration is None else duration, pattern=words["transactional-id-pattern"]
        )
    except KafkaError as error:
        raise _failed("Failed to list transactions", error) from error
    rows = [
        (listing.transactional_id, str(listing.coordinator.id), str(listing.producer_id), listing.state)
        for listing in transactions
    ]
    table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def _describe(client: Admin, words: Words) -> None:
    name = words["transactional-id"]
    try:
        transaction = client.describe_transactions([name])[name]
    except KafkaError as error:
        what = f"Failed to describe transaction state of transactional-id `{name}`"
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            why = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
            raise Failed(f"{what}: {why}. Enable debug logging for additional detail.") from error
        raise _failed(what, error) from error
    began = transaction.start_timestamp
    row = (
        str(transaction.coordinator.id),
        name,
        str(transaction.producer_id),
        str(transaction.producer_epoch),
        transaction.state,
        str(transaction.timeout_ms),
        "None" if began is None else str(began),
        "None" if began is None else str(_now_ms() - began),
        ",".join(map(str, transaction.partitions)),
    )
    titles = ("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState")
    times = ("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs")
    table((*titles, *times, "TopicPartitions"), [row])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _partition(words: Words) -> TopicPartition:
    from ottla.client import TopicPartition

    return TopicPartition(words["topic"], words["partition"])


def _describe_producers(client: Admin, words: Words) -> None:
    partition, broker = _partition(words), words["broker-id"]
    try:
        producers = client.describe_producers([partition], broker=broker)[partition]
    except KafkaError as error:
        where = "leader" if broker is None else f"broker {broker}"
        raise _failed(f"Failed to describe producers for partition {partition} on {where}", error) from error
    rows = [
        (
            str(producer.producer_id),
            str(producer.producer_epoch),
            str(-1 if producer.coordinator_epoch is None else producer.coordinator_epoch),
            str(producer.last_sequence),
            str(producer.last_timestamp),
            str(producer.transaction_start_offset),
        )
        for producer in producers
    ]
    titles = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    table((*titles, "CurrentTransactionStartOffset"), rows)


def _abort(client: Admin, words: Words) -> None:
    partition, start = _partition(words), words["start-offset"]
    if start is None and words["producer-id"] is None:
        raise Failed(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if start is None:
        for name in ("producer-epoch", "coordinator-epoch"):
            if words[name] is None:
                raise Failed(f"Missing required argument --{name}")
        raise Failed("brokers before 3.0 are not served: give --start-offset")
    try:
        producers = client.describe_producers([partition])[partition]
    except KafkaError as error:
        raise _failed(f"Failed to validate producer state for partition {partition}", error) from error
    if not any(producer.transaction_start_offset == start for producer in producers):
        raise Failed(f"Could not find any open transactions starting at offset {start} on partition {partition}")
    try:
        client.abort_transaction(partition, start)
    except KafkaError as error:
        raise _failed(f"Failed to abort transaction at offset {start} of {partition}", error) from error


def _terminate(client: Admin, words: Words) -> None:
    name = words["transactionalId"]
    try:
        client.terminate_transaction(name)
    except KafkaError as error:
        raise _failed(f"Failed to force terminate transactionalId `{name}`", error) from error


# ---- transactions that hang


def _find_hanging(client: Admin, words: Words) -> None:
    if words["topic"] is None and words["broker-id"] is None:
        raise Failed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if words["partition"] is not None and words["topic"] is None:
        raise Failed("The --partition argument requires --topic to be provided")
    try:
        hanging = find_hanging(
            client,
            words["topic"],
            longer_than_ms=words["max-transaction-timeout"] * 60_000,
            partition=words["partition"],
            broker=words["broker-id"],
        )
    except SearchFailed as error:
        raise _failed(f"Failed to {error.doing}", error.error) from error
    rows = [
        (
            partition.topic,
            str(partition.partition),
            str(producer.producer_id),
            str(producer.producer_epoch),
            str(-1 if producer.coordinator_epoch is None else producer.coordinator_epoch),
            str(producer.transaction_start_offset),
            str(producer.last_timestamp),
            str((_now_ms() - producer.last_timestamp) // 60_000),
        )
        for partition, producer in hanging
    ]
    titles = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset")
    table((*titles, "LastTimestamp", "Duration(min)"), rows)
