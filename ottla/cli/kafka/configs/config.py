"""kafka-configs: the settings of topics, brokers, loggers, groups and client metrics, quotas, and SCRAM credentials."""

from __future__ import annotations

from ottla.cli.kafka.configs.config_alter import alter
from ottla.cli.kafka.configs.config_entity import ENTITIES, QUOTAS, RESOURCES, Entities, read
from ottla.cli.kafka.configs.config_view import describe
from ottla.cli.kafka.program.error import java_class, message
from ottla.cli.kafka.program.option import COMMAND_CONFIG, CONTROLLER, Given, Option, Usage, forbid
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, tell
from ottla.kernel.error import ErrorCode, KafkaError

OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first.", "server to connect to"),
    CONTROLLER,
    COMMAND_CONFIG,
    Option("alter", "Change settings."),
    Option("describe", "Show settings."),
    Option("all", "Include settings at their defaults."),
    Option("entity-type", "Type: topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.", ""),
    Option("entity-name", "Name of the entity.", ""),
    Option("entity-default", "The default for all entities without their own setting."),
    Option("add-config", "Settings to add: k1=v1,k2=[v1,v2,v2],k3=v3.", ""),
    Option("add-config-file", "Properties file with settings.", ""),
    Option("delete-config", "Names of settings to delete, separated by commas.", "", separator=","),
    *(Option(entity.flag, f"Name of the entity; its type is {entity.kind}.", "") for entity in ENTITIES),
    *(Option(entity.defaults, f"The default for all {entity.kind}.") for entity in ENTITIES if entity.defaults),
)


def main() -> None:
    """The console script."""
    about = (
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
        "client-metrics or group"
    )
    command(OPTIONS, about, _run, failed=_failed)


def _failed(error: Exception) -> int:
    if isinstance(error, KafkaError) and error.code is not ErrorCode.UNSUPPORTED_VERSION:
        import sys

        tell(
            f"Error while executing config command with args '{' '.join(sys.argv[1:])}'",
            f"java.util.concurrent.ExecutionException: {java_class(error)}: {message(error)}",
        )
    else:
        tell(message(error))
    return 1


def _run(given: Given) -> int:
    entities = _check(given)
    bootstrap = given["bootstrap-server"] or given["bootstrap-controller"]
    if "alter" in given and len(entities.kinds) != len(entities.names):
        raise Failed("An entity name must be specified for every entity type")
    with admin(bootstrap, admin_of(given)) as client:
        if "alter" in given:
            alter(given, client, entities)
        else:
            describe(client, entities, everything="all" in given)
    return 0


def _check(given: Given) -> Entities:
    if ("alter" in given) == ("describe" in given):
        raise Usage("Command must include exactly one action: --describe, --alter")
    forbid(given, "describe", ("alter", "add-config", "delete-config"))
    entities = read(given)
    if twice := [kind for index, kind in enumerate(entities.kinds) if kind in entities.kinds[:index]]:
        raise Failed(f"Duplicate entity type(s) specified: {','.join(twice)}")
    servers = [name for name in ("bootstrap-server", "bootstrap-controller") if name in given]
    if not servers:
        raise Failed("Either --bootstrap-server or --bootstrap-controller must be specified.")
    known = (*RESOURCES[:2], "clients", "users", "ips", "client-metrics", "groups", "broker-loggers")
    for kind in entities.kinds:
        if kind not in known:
            order = "topics, clients, users, brokers, ips, client-metrics, groups, broker-loggers"
            raise Failed(
                f"Invalid entity type {kind}, the entity type must be one of {order} with a --bootstrap-server or "
                "--bootstrap-controller argument"
            )
    if not entities.kinds:
        raise Failed("At least one entity type must be specified")
    if len(entities.kinds) > 1 and set(entities.kinds) != {"users", "clients"}:
        raise Failed("Only 'users' and 'clients' entity types may be specified together")
    general = any(name in given for name in ("entity-name", "entity-type", "entity-default"))
    if general and any(entity.flag in given or entity.defaults in given for entity in ENTITIES):
        raise Failed("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if len(servers) > 1:
        raise Failed("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(entities)
    if "describe" in given:
        _check_describe(given, entities)
    else:
        _check_alter(given, entities)
    return entities


def _check_names(entities: Entities) -> None:
    kind = entities.kinds[0]
    for name in filter(None, entities.names):
        if kind in ("brokers", "broker-loggers") and not name.lstrip("-").isdecimal():
            raise Failed(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        if kind == "ips" and not _resolves(name):
            raise Failed(f"The entity name for {kind} must be a valid IP or resolvable host, but it is: {name}")


def _resolves(host: str) -> bool:
    import socket

    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _check_describe(given: Given, entities: Entities) -> None:
    kinds = ",".join(entities.kinds)
    if not {"users", "clients", "brokers", "ips"} & set(entities.kinds) and "entity-default" in given:
        raise Failed(f"--entity-default must not be specified with --describe of {kinds}")
    if "broker-loggers" in entities.kinds and not any(entities.names):
        raise Failed(f"An entity name must be specified with --describe of {kinds}")


def _check_alter(given: Given, entities: Entities) -> None:
    named, default = any(entities.names), "" in entities.names
    if {"users", "clients", "brokers", "ips"} & set(entities.kinds):
        if not named and not default:
            raise Failed(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not named:
        raise Failed(f"An entity name must be specified with --alter of {','.join(entities.kinds)}")
    if "add-config" in given and "add-config-file" in given:
        raise Failed("Only one of --add-config or --add-config-file must be specified")
    if not any(name in given for name in ("add-config", "add-config-file", "delete-config")):
        raise Failed(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


__all__ = ["QUOTAS", "main"]
