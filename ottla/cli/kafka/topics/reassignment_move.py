"""The moves of kafka-reassign-partitions: parse the file, start, verify and cancel them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.json_file import array, checked, parse, typed
from ottla.cli.kafka.program.tool import Failed
from ottla.operations.reassignment import Replicas, begin_directory_moves
from ottla.operations.reassignment import directories as directories_of
from ottla.operations.throttle import throttle, throttle_directories, unthrottle_brokers, unthrottle_topics

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.client.admin.replica import Replica

_ANY = "any"


class Reported(Exception):
    """An error that is printed on stdout without "Error:"."""


@dataclass
class Plan:
    """The target brokers of each partition, and the target directories of replicas that name one."""

    replicas: Replicas = field(default_factory=dict)
    directories: dict[Replica, str] = field(default_factory=dict)
    #: As in the file: a partition may occur twice.
    partitions: list[TopicPartition] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Plan:
        """Parse the content of --reassignment-json-file."""
        from ottla.client import TopicPartition
        from ottla.client.admin.replica import Replica

        document = parse(text, "The input string is not a valid JSON")
        version = document.get("version", 1) if isinstance(document, dict) else 1
        if version != 1:
            raise Failed(f"Not supported version field value {version}")
        plan = cls()
        for entry in array(document, "partitions"):
            partition = TopicPartition(typed(entry, "topic", str), typed(entry, "partition", int))
            brokers = [checked(broker, int) for broker in typed(entry, "replicas", list)]
            paths = [checked(path, str) for path in array(entry, "log_dirs", [_ANY] * len(brokers))]
            if len(paths) != len(brokers):
                raise Failed(
                    f"Size of replicas list {brokers} is different from size of log dirs list {paths} for partition "
                    f"{partition}"
                )
            plan.partitions.append(partition)
            plan.replicas[partition] = brokers
            for broker, path in zip(brokers, paths, strict=True):
                if path != _ANY:
                    plan.directories[Replica(partition.topic, partition.partition, broker)] = path
        return plan

    def check(self) -> None:
        """Raise Failed if the plan is empty or has duplicates."""
        if not self.partitions:
            raise Failed("Partition reassignment list cannot be empty")
        if not all(self.replicas.values()):
            raise Failed("Partition replica list cannot be empty")
        if twice := sorted({str(tp) for tp in self.partitions if self.partitions.count(tp) > 1}):
            raise Failed(f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}")
        entries = []
        for partition, brokers in self.replicas.items():
            if again := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
                entries.append(f"{partition} contains multiple entries for {_listed(again)}")
        if entries:
            raise Failed(f"Partition replica lists may not contain duplicate entries: {'. '.join(entries)}")


def _listed(things: Iterable[object]) -> str:
    return ",".join(map(str, things))


def current(client: Admin, topics: Iterable[str]) -> Replicas:
    """Return the current replicas of these topics' partitions."""
    from ottla.client import TopicPartition

    described = client.describe_topics(dict.fromkeys(topics))
    for topic in described.errors:
        raise Failed(f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic {topic} not found.")
    return {
        TopicPartition(topic, partition.partition): [node.id for node in partition.replicas]
        for topic, description in described.succeeded.items()
        for partition in description.partitions
    }


def show_plan(client: Admin, replicas: Replicas, *, directories: bool) -> str:
    """Format a plan like the file of --reassignment-json-file."""
    where = directories_of(client, replicas) if directories and replicas else {}
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": brokers,
            "log_dirs": [where.get((tp, broker), (_ANY, None))[0] or _ANY for broker in brokers],
        }
        for tp, brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


# ---- verify


def verify(client: Admin, plan: Plan, *, preserve: bool) -> None:
    """Print the status of the moves; remove the throttles once nothing is moving."""
    moving = client.list_partition_reassignments()
    print("Status of partition reassignment:")
    for partition in sorted(plan.replicas):
        print(_status(client, partition, plan.replicas[partition], moving=partition in moving))
    lines, ongoing = _directory_status(client, plan)
    print("\n".join(lines))
    if not moving and not ongoing and not preserve:
        _clear_throttles(client, plan)


def _status(client: Admin, partition: TopicPartition, target: list[int], *, moving: bool) -> str:
    if moving:
        return f"Reassignment of partition {partition} is still in progress."
    described = client.describe_topics([partition.topic]).succeeded.get(partition.topic)
    parts = () if described is None else described.partitions
    now = [node.id for part in parts if part.partition == partition.partition for node in part.replicas]
    if now == target:
        return f"Reassignment of partition {partition} is completed."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is {_listed(now)} rather than "
        f"{_listed(target)}."
    )


def _directory_status(client: Admin, plan: Plan) -> tuple[list[str], bool]:
    """Return (status lines, whether any replica is still moving between directories)."""
    from ottla.client import TopicPartition

    if not plan.directories:
        return [""], False
    where = directories_of(client, plan.replicas)
    lines, ongoing = [], False
    for replica, target in sorted(plan.directories.items(), key=lambda entry: (entry[0].broker, str(entry[0]))):
        partition = TopicPartition(replica.topic, replica.partition)
        now, future = where.get((partition, replica.broker), (None, None))
        of = f"Partition {partition} on broker {replica.broker}"
        if now is None:
            lines.append(
                f"Partition {partition} is not found in any live log dir on broker {replica.broker}. There is likely "
                "an offline log directory on the broker."
            )
        elif future is not None:
            ongoing = True
            same = f"Reassignment of replica {partition}-{replica.broker} is still in progress."
            lines.append(same if future == target else f"{of} is being moved to log dir {future} instead of {target}.")
        elif now == target:
            lines.append(f"Reassignment of replica {partition}-{replica.broker} completed successfully.")
        else:
            lines.append(f"{of} is not being moved from log dir {now} to {target}.")
    return lines, ongoing


def _clear_throttles(client: Admin, plan: Plan) -> None:
    brokers = {node.id for node in client.describe_cluster().nodes}
    brokers |= {broker for replica in plan.replicas.values() for broker in replica}
    topics = sorted({replica.topic for replica in plan.replicas})
    print(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {_listed(sorted(brokers))}")
    unthrottle_brokers(client, brokers, directories=True)
    print(f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {_listed(topics)}")
    unthrottle_topics(client, topics)


# ---- execute


def execute(
    client: Admin,
    plan: Plan,
    *,
    additional: bool,
    bytes_per_s: int,
    directory_throttle: int,
    timeout_ms: int,
    same_factor: bool,
) -> None:
    """Start the moves."""
    plan.check()
    moving = client.list_partition_reassignments()
    if moving and not additional:
        raise Reported(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    live = {node.id for node in client.describe_cluster().nodes}
    if unknown := sorted({broker for replica in plan.replicas.values() for broker in replica} - live):
        raise Failed(f"Unknown broker id {unknown[0]}")
    there = current(client, (replica.topic for replica in plan.replicas))
    if missing := [str(replica) for replica in sorted(plan.replicas) if replica not in there]:
        why = f"Unable to find partition: {', '.join(missing)}"
        raise Failed(f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {why}")
    now = {replica: there[replica] for replica in plan.replicas}
    shown = show_plan(client, now, directories=True)
    print(
        f"Current partition replica assignment\n\n{shown}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if bytes_per_s >= 0 or directory_throttle >= 0:
        # A replica that another move is adding is not a source yet.
        full = {
            tp: [broker for broker in brokers if tp not in moving or broker not in moving[tp].adding]
            for tp, brokers in now.items()
        }
        _throttle(client, plan, full, bytes_per_s, directory_throttle)
    results = client.alter_partition_reassignments(plan.replicas, allow_replication_factor_change=not same_factor)
    if results.errors:
        lines = [f"{error}: {message(results.errors[error])}" for error in sorted(results.errors)]
        raise Reported("\n".join(["Error reassigning partition(s):", *lines]))
    many = "" if len(plan.replicas) == 1 else "s"
    print(f"Successfully started partition reassignment{many} for {_listed(sorted(plan.replicas))}")
    if plan.directories:
        _move(client, plan.directories, timeout_ms)


def _throttle(client: Admin, plan: Plan, now: Replicas, bytes_per_s: int, directory_throttle: int) -> None:
    print(
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed."
    )
    if bytes_per_s >= 0:
        throttle(client, now, plan.replicas, bytes_per_s)
        print(f"The inter-broker throttle limit was set to {bytes_per_s} B/s")
    if directory_throttle >= 0:
        throttle_directories(client, {directory.broker for directory in plan.directories}, directory_throttle)
        print(f"The replica-alter-dir throttle limit was set to {directory_throttle} B/s")


def _move(client: Admin, directories: dict[Replica, str], timeout_ms: int) -> None:
    """Start the moves between directories, waiting for replicas that do not exist yet."""

    def begun(replica: Replica, path: str) -> None:
        where = f"replica {replica.topic}-{replica.partition} with broker {replica.broker}"
        print(f"Successfully started moving log directory to {path} for {where} ")

    left, failed = begin_directory_moves(client, directories, timeout_ms, begun)
    if failed:
        raise Failed(f"Failed to alter dir for {_named(next(iter(failed)))}")
    if left:
        many = "" if len(left) == 1 else "s"
        names = ",".join(sorted(map(_named, left)))
        raise Reported(f"Timed out before log directory move{many} could be started for: {names}")


def _named(replica: Any) -> str:
    return f"{replica.topic}-{replica.partition}-{replica.broker}"


# ---- cancel


def cancel(client: Admin, plan: Plan, *, preserve: bool, timeout_ms: int) -> None:
    """Cancel the moves."""
    under_way = client.list_partition_reassignments(plan.replicas)
    moving = [replica for replica in plan.replicas if replica in under_way]
    if moving:
        results = client.alter_partition_reassignments(dict.fromkeys(moving))
        many = "" if len(results.errors) == 1 else "s"
        if results.errors:
            lines = [f"{error}: {message(results.errors[error])}" for error in sorted(results.errors)]
            raise Reported("\n".join([f"Error cancelling partition reassignment{many} for:", *lines]))
        many = "" if len(moving) == 1 else "s"
        print(f"Successfully cancelled partition reassignment{many} for: {_listed(sorted(moving))}")
    else:
        print("None of the specified partition reassignments are active.")
    back = _moving_directories(client, plan)
    if back:
        _move(client, back, timeout_ms)
    else:
        print("None of the specified partition moves are active.", end="")
    if not preserve:
        _clear_throttles(client, plan)


def _moving_directories(client: Admin, plan: Plan) -> dict[Replica, str]:
    """Return the replicas of the plan that are moving between directories -> their current directory."""
    from ottla.client import TopicPartition

    if not plan.directories:
        return {}
    where = directories_of(client, plan.replicas)
    moving: dict[Replica, str] = {}
    for replica in plan.directories:
        now, future = where.get((TopicPartition(replica.topic, replica.partition), replica.broker), (None, None))
        if now is not None and future is not None:
            moving[replica] = now
    return moving
