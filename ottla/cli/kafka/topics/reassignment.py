"""kafka-reassign-partitions: move partitions to other brokers, and replicas to other log directories."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.json_file import array, parse, typed
from ottla.cli.kafka.program.option import (
    COMMAND_CONFIG,
    CONTROLLER,
    Given,
    Option,
    Refused,
    Usage,
    int32,
    int64,
    pieces,
    require,
)
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, read_text
from ottla.cli.kafka.topics.reassignment_move import Plan, Reported, cancel, current, execute, show_plan, verify
from ottla.kernel.error import KafkaError, OttlaError
from ottla.operations.reassignment import RacksUnknown, Replicas, TooFewBrokers, spread

if TYPE_CHECKING:
    from ottla.client import Admin

#: Action to (what it needs, what may stand beside it).
_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verify": (("reassignment-json-file",), ("preserve-throttles",)),
    "generate": (("topics-to-move-json-file", "broker-list"), ("disable-rack-aware",)),
    "execute": (
        ("reassignment-json-file",),
        (
            "additional",
            "throttle",
            "replica-alter-log-dirs-throttle",
            "timeout",
            "disallow-replication-factor-change",
        ),
    ),
    "cancel": (("reassignment-json-file",), ("preserve-throttles", "timeout")),
    "list": ((), ()),
}
OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first.", "Server(s) to use for bootstrapping", optional=True),
    CONTROLLER,
    COMMAND_CONFIG,
    Option(
        "verify", "Show the progress of the moves in --reassignment-json-file; removes throttles when all are done."
    ),
    Option("generate", "Propose a plan for topics. Nothing is moved."),
    Option("execute", "Start the moves in --reassignment-json-file."),
    Option("cancel", "Cancel the moves in --reassignment-json-file."),
    Option("list", "List all moves."),
    Option(
        "reassignment-json-file",
        'File with the moves: {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2], '
        '"log_dirs": ["any", "/dir"]}], '
        '"version": 1}; log_dirs may be omitted.',
        "manual assignment json file path",
    ),
    Option(
        "topics-to-move-json-file",
        'For --generate: {"topics": [{"topic": "foo"}], "version": 1}.',
        "topics to reassign json file path",
    ),
    Option("broker-list", "For --generate: target brokers, 0,1,2.", "brokerlist"),
    Option("disable-rack-aware", "For --generate: ignore racks."),
    Option("throttle", "Limit in bytes a second between brokers.", "throttle", int64, default=-1),
    Option(
        "replica-alter-log-dirs-throttle", "Limit in bytes a second between directories.", "throttle", int64, default=-1
    ),
    Option("timeout", "How long to wait until moves between directories start (ms).", "timeout", int64, default=10000),
    Option("additional", "Start moves although others are under way."),
    Option("preserve-throttles", "Leave throttles as they are."),
    Option("disallow-replication-factor-change", "Refuse a change of the number of replicas."),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to move topic partitions between replicas.", _run)


def _run(given: Given) -> int:
    action = _check(given)
    bootstrap = given["bootstrap-server"] or given["bootstrap-controller"]
    properties = {"client.id": "reassign-partitions-tool", **admin_of(given)}
    try:
        with admin(bootstrap, properties) as client:
            _act(action, given, client)
    except Reported as report:
        print(report)
        return 1
    except (KafkaError, OttlaError, Failed, Refused) as error:
        print(f"Error: {caused(error)}")
        return 1
    return 0


def _check(given: Given) -> str:
    chosen = [action for action in _ACTIONS if action in given]
    if len(chosen) != 1:
        names = ", ".join(f"--{action}" for action in ("generate", "execute", "verify", "cancel", "list"))
        raise Usage(f"Command must include exactly one action: {names}")
    action = chosen[0]
    servers = [option for option in ("bootstrap-server", "bootstrap-controller") if option in given]
    if not servers:
        raise Usage("Please specify either --bootstrap-server or --bootstrap-controller")
    needed, permitted = _ACTIONS[action]
    require(given, *needed)
    allowed = {action, "command-config", "bootstrap-server", *needed, *permitted}
    allowed |= {"bootstrap-controller"} if action in ("cancel", "list") else set()
    for name, _ in given.occurrences:
        if name not in allowed:
            raise Usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def _act(action: str, given: Given, client: Admin) -> None:
    if action == "list":
        _list(client)
    elif action == "generate":
        _generate(given, client)
    else:
        plan = Plan.read(read_text(given["reassignment-json-file"]))
        if action == "verify":
            verify(client, plan, preserve="preserve-throttles" in given)
        elif action == "cancel":
            cancel(client, plan, preserve="preserve-throttles" in given, timeout_ms=given["timeout"])
        else:
            execute(
                client,
                plan,
                additional="additional" in given,
                bytes_per_s=given["throttle"],
                directory_throttle=given["replica-alter-log-dirs-throttle"],
                timeout_ms=given["timeout"],
                same_factor="disallow-replication-factor-change" in given,
            )


def _list(client: Admin) -> None:
    moves = client.list_partition_reassignments()
    if not moves:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, move in sorted(moves.items()):
        line = f"{partition}: replicas: {_ids(move.replicas)}."
        line += f" adding: {_ids(move.adding)}." if move.adding else ""
        print(line + (f" removing: {_ids(move.removing)}." if move.removing else ""))


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _generate(given: Given, client: Admin) -> None:
    try:
        brokers = [int32(part) for part in pieces(given["broker-list"])]
    except ValueError as error:
        raise Failed(f'For input string: "{error}"') from error
    if twice := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
        raise Failed(f"Broker list contains duplicate entries: {twice}")
    topics = _topics(read_text(given["topics-to-move-json-file"]))
    if twice_topics := sorted({topic for topic in topics if topics.count(topic) > 1}):
        raise Failed(f"List of topics to reassign contains duplicate entries: [{', '.join(twice_topics)}]")
    now = current(client, topics)
    proposed = _propose(client, now, brokers, rack_aware="disable-rack-aware" not in given)
    print(f"Current partition replica assignment\n{show_plan(client, now, directories=True)}\n")
    print(f"Proposed partition reassignment configuration\n{show_plan(client, proposed, directories=False)}")


def _topics(text: str) -> list[str]:
    document = parse(text, "The input string is not a valid JSON")
    version = document.get("version", 1) if isinstance(document, dict) else 1
    if version != 1:
        raise Failed(f"Not supported version field value {version}")
    return [typed(entry, "topic", str) for entry in array(document, "topics")]


def _propose(client: Admin, now: Replicas, brokers: list[int], *, rack_aware: bool) -> Replicas:
    nodes = [node for node in client.describe_cluster().nodes if node.id in brokers]
    racks = {node.id: node.rack if rack_aware else None for node in nodes}
    try:
        # Start from a random broker.
        return spread(now, racks, random.randrange(len(racks)) if racks else 0)
    except RacksUnknown as error:
        raise Failed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        ) from error
    except TooFewBrokers as error:
        raise Failed(
            "org.apache.kafka.common.errors.InvalidReplicationFactorException: The target replication factor of "
            f"{error.wanted} cannot be reached because only {error.there} broker(s) are registered or some brokers "
            "have all their log directories cordoned."
        ) from error
