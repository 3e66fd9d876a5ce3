"""`ottla transactions`: transactional ids, producers of a partition, and hanging transactions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, admin, as_json, cluster, complete_topic, confirm, yes_option

if TYPE_CHECKING:
    from rich.text import Text

_STATES = {"Ongoing": "yellow", "Empty": "dim", "Dead": "red", "CompleteCommit": "green", "CompleteAbort": "green"}
#: A transaction that is open for longer than this has been forgotten (transaction.max.timeout.ms is 15 minutes).
_LONG_MINUTES = 15


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def transactions(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List transactional ids and producers, find and abort hanging transactions. Without a command, list the ids."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


def _state(state: str) -> Text:
    from ottla.cli import screen

    return screen.coloured(state, _STATES.get(state, "yellow"))


@transactions.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the transactional ids with their states."""
    from ottla.cli import screen
    from ottla.operations.transaction_view import transactions as summaries

    with admin(bootstrap, client) as ask:
        listed = summaries(ask)
    if as_json:
        screen.document([asdict(transaction) for transaction in listed])
        return
    columns = [screen.Column("transactional id", "name"), screen.Column("state")]
    columns += [screen.Column(title, numeric=True) for title in ("producer", "coordinator", "partitions", "open for")]
    rows = [
        (
            transaction.id,
            _state(transaction.state),
            transaction.producer,
            transaction.coordinator,
            transaction.partitions,
            _open(transaction.open_ms),
        )
        for transaction in listed
    ]
    screen.table(columns, rows, empty="there are no transactions yet")


def _open(open_ms: int | None) -> object:
    from ottla.cli import screen

    return open_ms if open_ms is None or not screen.on_terminal() else screen.duration(max(0, open_ms))


@transactions.command()
@cluster
@click.argument("transactional_id", metavar="ID")
@as_json
def describe(bootstrap: str, client: tuple[str, ...], transactional_id: str, as_json: bool) -> None:
    """Show a transactional id: its producer, and the partitions of its open transaction."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        description = ask.describe_transactions([transactional_id])[transactional_id]
    about = {
        "id": description.transactional_id,
        "state": description.state,
        "producer": description.producer_id,
        "epoch": description.producer_epoch,
        "timeout_ms": description.timeout_ms,
        "began": description.start_timestamp,
        "coordinator": description.coordinator.id,
        "partitions": [str(partition) for partition in description.partitions],
    }
    if as_json:
        screen.document(about)
        return
    rows = [
        ("state", _state(description.state)),
        ("producer", f"{description.producer_id}, epoch {description.producer_epoch}"),
        ("timeout", screen.duration(description.timeout_ms)),
        ("began", screen.instant(description.start_timestamp)),
        ("coordinator", f"node {description.coordinator.id}"),
        ("partitions", " ".join(map(str, description.partitions)) or None),
    ]
    screen.heading(transactional_id)
    screen.table([screen.Column("", "dim"), screen.Column("")], rows, headless=True)


@transactions.command()
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.argument("partition", type=click.IntRange(0))
@as_json
def producers(bootstrap: str, client: tuple[str, ...], topic: str, partition: int, as_json: bool) -> None:
    """Show the producers that have written to a partition recently, and their open transactions."""
    from ottla.cli import screen
    from ottla.client import TopicPartition

    with admin(bootstrap, client) as ask:
        where = TopicPartition(topic, partition)
        documents = [
            {
                "producer": producer.producer_id,
                "epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "open_from": producer.transaction_start_offset,
            }
            for producer in ask.describe_producers([where])[where]
        ]
    if as_json:
        screen.document(documents)
        return
    columns = [screen.Column(title, numeric=True) for title in ("producer", "epoch", "last sequence")]
    columns += [screen.Column("last wrote"), screen.Column("open from offset", numeric=True)]
    rows = [(*list(row.values())[:3], screen.instant(row["last_timestamp"]), row["open_from"]) for row in documents]
    screen.table(columns, rows, empty=f"no idempotent producer has written to {topic} {partition} recently")


@transactions.command()
@cluster
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option(
    "-m",
    "--minutes",
    type=click.IntRange(0),
    default=_LONG_MINUTES,
    show_default=True,
    help="Only transactions open for longer than this.",
)
@as_json
def hanging(bootstrap: str, client: tuple[str, ...], topic: str | None, minutes: int, as_json: bool) -> int:
    """Find hanging transactions, which their coordinator no longer knows; exit code 1 when there are any.

    A read_committed consumer stops before such a transaction. `ottla transactions abort` ends it.
    """
    from ottla.cli import screen
    from ottla.operations.hanging import find_hanging

    with admin(bootstrap, client) as ask:
        if topic is not None:
            ask.describe_topic(topic)
        documents: list[dict[str, Any]] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": producer.transaction_start_offset,
                "producer": producer.producer_id,
                "last_timestamp": producer.last_timestamp,
            }
            for partition, producer in find_hanging(ask, topic, longer_than_ms=minutes * 60_000)
        ]
    if as_json:
        screen.document(documents)
        return 1 if documents else 0
    columns = [screen.Column("topic", "name"), *(screen.Column(title, numeric=True) for title in _HANGING)]
    rows = [(*list(row.values())[:4], screen.instant(row["last_timestamp"])) for row in documents]
    screen.table([*columns, screen.Column("last wrote")], rows, empty="there are no hanging transactions")
    return 1 if documents else 0


_HANGING = ("partition", "start offset", "producer")


@transactions.command()
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.argument("partition", type=click.IntRange(0))
@click.argument("start_offset", type=click.IntRange(0))
@yes_option
@as_json
def abort(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    partition: int,
    start_offset: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Abort a hanging transaction, with the values that `hanging` shows."""
    from ottla.cli import screen
    from ottla.client import TopicPartition

    confirm(f"abort the transaction in {topic} {partition} from offset {start_offset}?", yes=yes)
    with admin(bootstrap, client) as ask:
        ask.abort_transaction(TopicPartition(topic, partition), start_offset)
    screen.report(
        as_json,
        {"topic": topic, "partition": partition, "aborted_from": start_offset},
        f"aborted the transaction in {topic} {partition} from offset {start_offset}",
    )


@transactions.command()
@cluster
@click.argument("transactional_id", metavar="ID")
@yes_option
@as_json
def fence(bootstrap: str, client: tuple[str, ...], transactional_id: str, yes: bool, as_json: bool) -> None:
    """Fence the producer that uses a transactional id, and abort its open transaction."""
    from ottla.cli import screen

    confirm(f"fence the producer that uses {transactional_id}, and abort its transaction?", yes=yes)
    with admin(bootstrap, client) as ask:
        # Fencing an unknown id would create it.
        ask.describe_transactions([transactional_id]).check()
        ask.terminate_transaction(transactional_id)
    screen.report(
        as_json,
        {"fenced": transactional_id},
        f"{transactional_id}: the producer is fenced, its transaction aborted",
    )
