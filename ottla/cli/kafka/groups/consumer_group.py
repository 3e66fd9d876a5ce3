"""kafka-consumer-groups: list, describe, reset and delete consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.cli.kafka.groups.consumer_group_reset import RESET_OPTIONS, SPECIFICATIONS, reset
from ottla.cli.kafka.groups.consumer_group_view import describe
from ottla.cli.kafka.groups.deletion import OF_THE_GROUP, print_deletion
from ottla.cli.kafka.program.error import caused, java_class, message, standard
from ottla.cli.kafka.program.option import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Given,
    Option,
    Refused,
    Usage,
    forbid,
    int64,
    require,
)
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, tell
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.client.admin.result import GroupListing

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_STATES = (
    "Empty",
    "Dead",
    "Stable",
    "CompletingRebalance",
    "PreparingRebalance",
    "Assigning",
    "Reconciling",
)

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("group", "Group; may be repeated.", "consumer group"),
    Option(
        "topic",
        "Topic whose offsets to delete or reset, optionally with partitions: topic1:0,1,2; may be repeated.",
        "topic",
    ),
    Option("all-topics", "All topics of the group, for --reset-offsets."),
    Option("list", "List the consumer groups."),
    Option("describe", "Show the offsets and lag of a group, its members or its state."),
    Option("all-groups", "All consumer groups."),
    Option("delete", "Delete groups with their committed offsets."),
    Option("timeout", "Timeout of each call.", "timeout (ms)", int64, default=30000),
    Option("reset-offsets", "Reset the committed offsets of groups without members."),
    Option("delete-offsets", "Delete the committed offsets of topics."),
    Option("dry-run", "Only show what --reset-offsets would change."),
    Option("execute", "Carry out --reset-offsets."),
    Option("export", "Print the offsets as CSV."),
    *RESET_OPTIONS,
    Option("members", "Describe the members.", only_with=("describe",)),
    Option("verbose", "Describe in more detail.", only_with=("describe",)),
    Option("offsets", "Describe the offsets; the default without --members and --state.", only_with=("describe",)),
    Option(
        "state",
        "Describe the state; with --list, show the states, or list only groups in these states.",
        "",
        optional=True,
        only_with=("describe", "list"),
    ),
    Option("type", "With --list: show the types, or list only groups of them.", "", optional=True, only_with=("list",)),
    Option("validate-regex", "Check whether brokers accept this regular expression.", "regex"),
)


def main() -> None:
    """The console script."""
    command(
        OPTIONS,
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
        "consumer group offsets.",
        _run,
    )


def _run(given: Given) -> int:
    _check(given)
    if sum(action in given for action in _ACTIONS) != 1:
        raise Usage(f"Command must include exactly one action: {', '.join(f'--{action}' for action in _ACTIONS)}")
    if "validate-regex" in given:
        _validate(given["validate-regex"])
        return 0
    properties = {**admin_of(given), "default.api.timeout.ms": str(given["timeout"])}
    try:
        with admin(given["bootstrap-server"], properties) as client:
            _act(given, client)
    except Usage:
        raise
    except KafkaError as error:
        print(f"\nError: Executing consumer group command failed due to {caused(error)}")
        tell(f"java.util.concurrent.ExecutionException: {caused(error)}")
    except (OttlaError, Failed, Refused) as error:
        print(f"\nError: Executing consumer group command failed due to {error}")
        tell(str(error))
    return 0


def _act(given: Given, client: Admin) -> None:
    if "list" in given:
        _list(given, client)
    elif "describe" in given:
        describe(given, client, _groups(given, client))
    elif "delete" in given:
        _delete(client, _groups(given, client))
    elif "reset-offsets" in given:
        reset(given, client, _groups(given, client))
    else:
        delete_offsets(client, given["group"], given.values("topic"))


def _check(given: Given) -> None:
    if "validate-regex" not in given:
        require(given, "bootstrap-server")
    scopes = "[all-groups], [group]"
    for action in ("describe", "delete", "reset-offsets"):
        if action in given and action != "reset-offsets" and "group" not in given and "all-groups" not in given:
            raise Usage(f"Option [{action}] takes one of these options: {scopes}")
    if "describe" in given:
        if sum(name in given for name in ("members", "offsets", "state")) > 1:
            raise Usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given["state"] is not None:
            raise Usage("Option [describe] does not take a value for [state]")
    if "delete" in given and "topic" in given:
        raise Usage("The consumer does not support topic-specific offset deletion from a consumer group.")
    if "delete-offsets" in given and ("group" not in given or "topic" not in given):
        raise Usage("Option [delete-offsets] takes the following options: [topic], [group]")
    if "reset-offsets" in given:
        _check_reset(given, scopes)
    forbid(given, "group", ("all-groups",))
    forbid(given, "group", ("list",))
    forbid(given, "topic", ("list", "describe"))


def _check_reset(given: Given, scopes: str) -> None:
    if "dry-run" in given and "execute" in given:
        raise Usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if "dry-run" not in given and "execute" not in given:
        tell(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will "
            "require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if "
            "you are scripting this command and want to keep the current default behavior without prompting."
        )
    if "group" not in given and "all-groups" not in given:
        raise Usage(f"Option [reset-offsets] takes one of these options: {scopes}")
    for specification in SPECIFICATIONS:
        forbid(given, specification, [other for other in SPECIFICATIONS if other != specification])


def _validate(text: str) -> None:
    from ottla.kernel.re2.pattern import Expression, InvalidExpression

    try:
        Expression(text)
    except InvalidExpression as error:
        print(f"The regular expression `{text}` is invalid: {error}.")
    else:
        print(f"The regular expression `{text}` is valid.")


def _groups(given: Given, client: Admin) -> list[str]:
    if "all-groups" in given:
        return [listing.id for listing in _consumer_groups(client)]
    return given.values("group")


def _consumer_groups(client: Admin, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
    wanted = [type_ for type_ in types if type_ in ("classic", "consumer")] or ["classic", "consumer"]
    return [
        group
        for group in client.list_groups(states=states)
        if group.type.value in wanted and group.protocol_type in ("", "consumer")
    ]


def _list(given: Given, client: Admin) -> None:
    if "type" not in given and "state" not in given:
        for listing in _consumer_groups(client):
            print(listing.id)
        return
    groups = _consumer_groups(client, _states(given["state"] or ""), _types(given["type"] or ""))
    width = 10 + max([15, *(len(listing.id) for listing in groups)])
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(listing.id, listing.type.value.capitalize(), listing.state) for listing in groups]
    for group, kind, state in rows:
        line = f"{group:<{width}}"
        line += f" {kind:<20}" if "type" in given else ""
        print(line + (f" {state:<20}" if "state" in given else ""))


def _states(text: str) -> list[str]:
    known = {state.lower(): state for state in _STATES}
    states = [part.strip().lower().replace("_", "") for part in text.split(",") if text]
    if any(state not in known for state in states):
        raise Usage(f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES)}")
    return [known[state] for state in states]


def _types(text: str) -> list[str]:
    types = [part.strip().lower() for part in text.split(",") if text]
    if any(type_ not in ("classic", "consumer") for type_ in types):
        raise Usage(f"Invalid types list '{text}'. Valid types are: Consumer, Classic")
    return types


def _delete(client: Admin, groups: list[str]) -> None:
    errors = client.delete_groups(groups).errors
    failed = {group: f"{java_class(error)}: {message(error)}" for group, error in errors.items()}
    print_deletion("consumer", groups, failed)


_OF_A_PARTITION = (
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def delete_offsets(client: Admin, group: str, topics: list[str]) -> None:
    """Delete a group's committed offsets in topics (TOPIC or TOPIC:0,1), and print the result for each partition."""
    partitions, errors = _partitions_to_delete(client, topics)
    delete_offsets_of(client, group, partitions, errors)


def delete_offsets_of(
    client: Admin, group: str, partitions: list[TopicPartition], errors: dict[TopicPartition, str]
) -> None:
    """Delete a group's committed offsets in partitions; `errors` are those of topics that do not exist."""
    first: KafkaError | None = None
    try:
        results = client.delete_group_offsets(group, partitions)
        errors |= {
            partition: standard(results.errors[partition]) for partition in partitions if partition in results.errors
        }
        first = next(iter(results.errors.values()), None)
    except KafkaError as error:
        first = error
        errors |= dict.fromkeys(partitions, standard(error))
    if first is None:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif first.code in OF_THE_GROUP:
        print(f"\nError: {standard(first).partition(': ')[2]}")
    elif first.code in _OF_A_PARTITION:
        print("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"\nError: Encountered some unknown error: {first.code.name}")
    rows = sorted({*partitions, *errors}, key=lambda tp: f"{tp.topic}{tp.partition}")
    width = max([15, *(len(row.topic) for row in rows)])
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", end="")
    for row in rows:
        status = f"Error: {errors[row]}" if row in errors else "Successful"
        number = row.partition if row.partition >= 0 else "-"
        print(f"\n{row.topic:<{width}} {number:<10} {status:<15}", end="")
    print()


def _partitions_to_delete(client: Admin, topics: list[str]) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    from ottla.cli.kafka.groups.consumer_group_reset import partitions_of
    from ottla.client import TopicPartition

    partitions = [partition for topic in topics if ":" in topic for partition in partitions_of(topic)]
    for topic, number in partitions:
        if number < 0:
            raise Failed(f"Invalid partition of {topic}: {number} (expected 0 or more)")
    described = client.describe_topics(dict.fromkeys(topic for topic in topics if ":" not in topic))
    errors = {TopicPartition(topic, -1): standard(error) for topic, error in described.errors.items()}
    for topic, description in described.succeeded.items():
        partitions += [TopicPartition(topic, partition.partition) for partition in description.partitions]
    return list(dict.fromkeys(partitions)), errors
