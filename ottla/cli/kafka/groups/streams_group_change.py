"""`kafka-streams-groups --delete`, `--delete-offsets` and `--reset-offsets`, with the internal topics of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.groups.consumer_group import delete_offsets as delete_group_offsets
from ottla.cli.kafka.groups.consumer_group import delete_offsets_of
from ottla.cli.kafka.groups.consumer_group_reset import (
    check_partitions,
    csv_text,
    not_reset,
    partitions_in,
    specified_offsets,
)
from ottla.cli.kafka.groups.deletion import print_deletion, refused
from ottla.cli.kafka.groups.streams_group import chosen, streams_groups
from ottla.cli.kafka.groups.streams_group_view import source_topics
from ottla.cli.kafka.program.error import caused, message
from ottla.cli.kafka.program.option import Given, Usage
from ottla.cli.kafka.program.tool import Failed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.offsets import Offsets
from ottla.operations.streams_topic import internal_topics

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

# ---- delete


def delete(given: Given, client: Admin) -> None:
    """Delete groups without members, and their internal topics if requested."""
    groups = chosen(given, client)
    failed = refused("Streams", streams_groups(client), groups, "does not exist or is not a streams group")
    left = [name for name in groups if name not in failed]
    internal = _internal_topics(client, left) if "delete-all-internal-topics" in given else {}
    errors = client.delete_groups(left).errors
    failed |= {group: caused(error) for group, error in errors.items()}
    done = [name for name in left if name not in failed]
    kept = _delete_internal_topics(client, {group: topics for group, topics in internal.items() if group in done})
    print_deletion("streams", groups, failed, end=".")
    if internal and done:
        if not kept:
            names = ", ".join(f"'{name}'" for name in done if name in internal)
            print(f"Deletion of associated internal topics of the streams groups ({names}) was successful.")
            return
        print("Deletion of some associated internal topics failed:")
        for group, error in kept.items():
            print(f"* Internal topics of the streams group '{group}' could not be deleted due to: {caused(error)}")


def _internal_topics(client: Admin, groups: list[str]) -> dict[str, list[str]]:
    """Return group -> its internal topics; topics with names of another form are left alone."""
    internal: dict[str, list[str]] = {}
    for group in groups:
        described = client.describe_streams_group(group)
        sources = source_topics(described)
        for part in described.subtopologies:
            for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
                if topic in sources:
                    continue
                if internal_topics(group, [topic]):
                    internal.setdefault(group, []).append(topic)
                else:
                    print(
                        f"\nError: The internal topic '{topic}' is not inferred as internal and thus will not be "
                        f"deleted with the group '{group}'."
                    )
    return internal


def _delete_internal_topics(client: Admin, topics: dict[str, list[str]]) -> dict[str, KafkaError]:
    kept: dict[str, KafkaError] = {}
    for group, doomed in topics.items():
        errors = client.delete_topics(doomed).errors
        for topic, error in errors.items():
            print(f"Failed to delete internal topic: {topic}")
            kept[group] = error
    return kept


# ---- delete offsets


def delete_offsets(given: Given, client: Admin) -> None:
    """Delete the committed offsets of a group."""
    group = given["group"]
    if "all-input-topics" not in given:
        delete_group_offsets(client, group, given.values("input-topic"))
        return
    delete_offsets_of(client, group, _input_partitions(client, group), {})


def _input_partitions(client: Admin, group: str) -> list[TopicPartition]:
    try:
        sources = source_topics(client.describe_streams_group(group))
    except KafkaError as error:
        raise Failed(f"java.util.concurrent.ExecutionException: {caused(error)}") from error
    return sorted(partition for partition in client.list_group_offsets(group) if partition.topic in sources)


# ---- reset


def reset(given: Given, client: Admin) -> None:
    """Compute the new offsets of each group, set them with --execute, and print them."""
    new_offsets: dict[str, Offsets] = {}
    for group in chosen(given, client):
        try:
            state = client.describe_streams_group(group).state
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise Failed(f"java.util.concurrent.ExecutionException: {caused(error)}") from error
            new_offsets[group] = _reset(given, client, group)
            continue
        if state in ("Empty", "Dead"):
            new_offsets[group] = _reset(given, client, group)
            if "execute" in given:
                _reset_internal_topics(given, client, group)
            continue
        new_offsets[group] = not_reset(group, state)
    if "export" in given:
        print(csv_text(new_offsets, single=len(given.values("group")) == 1))
        return
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if new_offsets else []
    rows += [(group, tp.topic, tp.partition, offsets[tp]) for group, offsets in new_offsets.items() for tp in offsets]
    for name, topic, partition, offset in rows:
        print(f"\n{name!s:<30} {topic!s:<30} {partition!s:<10} {offset!s:<15}", end="")
    print()


def _reset(given: Given, client: Admin, group: str) -> Offsets:
    partitions = _scope(given, client, group)
    offsets = specified_offsets(given, client, group, partitions)
    if "execute" in given:
        client.alter_group_offsets(group, offsets).check()
    return offsets


def _scope(given: Given, client: Admin, group: str) -> list[TopicPartition]:
    if "all-input-topics" in given:
        return _input_partitions(client, group)
    if "input-topic" not in given:
        if "from-file" in given:
            return []
        raise Usage("One of the reset scopes should be defined: --all-topics, --topic.")
    partitions = partitions_in(client, given.values("input-topic"))
    check_partitions(client, partitions)
    committed = client.list_group_offsets(group)
    if all(partition in committed for partition in partitions):
        return partitions
    print(f"\nError: One or more topics are not part of the group '{group}'.")
    return []


def _reset_internal_topics(given: Given, client: Admin, group: str) -> None:
    if "delete-all-internal-topics" in given:
        topics = _internal_topics(client, [group]).get(group, [])
    else:
        topics = given.values("delete-internal-topic")
    errors = client.delete_topics(topics).errors if topics else {}
    if any(error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for error in errors.values()):
        print(f"\nError: Deleting internal topics for group '{group}' failed because the topics do not exist.")
    elif errors:
        why = message(next(iter(errors.values())))
        print(f"\nError: Deleting internal topics for group '{group}' failed due to {why}")
