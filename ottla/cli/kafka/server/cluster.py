"""kafka-cluster: the id of the cluster, its endpoints, and the unregistration of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.program.argument import CONTROLLER, SERVER, Command, Words, tool
from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.option import Option, int32
from ottla.cli.kafka.program.tool import Failed, admin, load
from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client import Admin

_EITHER = (
    (
        Option(SERVER.name, SERVER.help, SERVER.value, short="b"),
        Option(CONTROLLER.name, CONTROLLER.help, CONTROLLER.value, short="C"),
    ),
)
_CONFIG = (
    Option("config", "Deprecated: use --command-config.", "CONFIG"),
    Option("command-config", "Properties file for the client.", "COMMAND_CONFIG", short="c"),
)
COMMANDS = (
    Command("cluster-id", "Show the id of the cluster.", _CONFIG, _EITHER),
    Command(
        "unregister",
        "Unregister a broker that is gone for good.",
        (*_CONFIG, Option("id", "Id of the broker.", "ID", int32, short="i", required=True)),
        _EITHER,
    ),
    Command(
        "list-endpoints",
        "List the endpoints of the brokers or the controllers.",
        (*_CONFIG, Option("include-fenced-brokers", "Include fenced brokers.")),
        _EITHER,
    ),
)


def main() -> None:
    """The console script."""
    tool("kafka-cluster", "The Kafka cluster tool.", _run, commands=COMMANDS, help_code=1)


def _run(words: Words) -> int:
    if words["config"] and words["command-config"]:
        raise Failed("--config and --command-config cannot be specified together.")
    if words["config"]:
        print(
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
        )
    file = words["config"] or words["command-config"]
    if words["include-fenced-brokers"] and words["bootstrap-controller"]:
        raise Failed("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    with admin(words["bootstrap-server"] or words["bootstrap-controller"], load(file) if file else {}) as client:
        {"cluster-id": _cluster_id, "unregister": _unregister, "list-endpoints": _endpoints}[words.command](
            client, words
        )
    return 0


def _cluster_id(client: Admin, _: Words) -> None:
    print(f"Cluster ID: {client.describe_cluster().cluster_id}")


def _unregister(client: Admin, words: Words) -> None:
    try:
        client.unregister_broker(words["id"])
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        print("The target cluster does not support the broker unregistration API.")
        return
    print(f"Broker {words['id']} is no longer registered.")


def _endpoints(client: Admin, words: Words) -> None:
    try:
        described = client.describe_cluster(include_fenced=bool(words["include-fenced-brokers"]))
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        print(message(error))
        return
    nodes = described.nodes
    hosts = max((len(node.host) for node in nodes), default=100)
    racks = max((len(node.rack) for node in nodes if node.rack is not None), default=10)
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    rows += [
        (
            str(node.id),
            node.host,
            str(node.port),
            node.rack or "null",
            "fenced" if node.id in described.fenced else "unfenced",
            "broker",
        )
        for node in nodes
    ]
    for number, host, port, rack, state, kind in rows:
        if words["bootstrap-controller"]:
            kind = "ENDPOINT_TYPE" if number == "ID" else "controller"
            print(f"{number:<10} {host:<{hosts}} {port:<10} {rack:<{racks}} {kind:<15}")
        else:
            print(f"{number:<10} {host:<{hosts}} {port:<10} {rack:<{racks}} {state:<10} {kind:<15}")
