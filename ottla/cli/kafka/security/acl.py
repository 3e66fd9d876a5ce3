"""kafka-acls: the rules (ACLs) of principals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import CONTROLLER, Given, Option, Refused, Usage, forbid
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.acl import Acl, AclFilter, AclOperation

#: What may be done with what (Kafka's documentation, "Operations and Resources on Protocols").
_OPERATIONS = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "CLUSTER": (
        "CREATE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "ALTER",
        "DESCRIBE",
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}
_CLUSTER = "kafka-cluster"


def _pattern_type(text: str) -> str:
    if text.upper() not in ("ANY", "MATCH", "LITERAL", "PREFIXED"):
        raise ValueError(text)
    return text.upper()


OPTIONS = (
    Option("bootstrap-server", "Brokers to connect to first, HOST:PORT,HOST:PORT.", "server to connect to"),
    CONTROLLER,
    Option("command-config", "Properties file for the client.", "command-config"),
    Option("topic", "Topic, or *; may be repeated.", "topic"),
    Option("cluster", "The cluster."),
    Option("group", "Consumer group, or *; may be repeated.", "group"),
    Option("transactional-id", "Transactional id, or *; may be repeated.", "transactional-id"),
    Option("idempotent", "With --producer: allow idempotent writes."),
    Option("delegation-token", "Delegation token, or *; may be repeated.", "delegation-token"),
    Option("user-principal", "User as a resource; may be repeated.", "user-principal"),
    Option(
        "resource-pattern-type",
        "Type of the names: literal or prefixed; for --list and --remove also any and match.",
        "ANY|MATCH|LITERAL|PREFIXED",
        _pattern_type,
        default="LITERAL",
    ),
    Option("add", "Add ACLs."),
    Option("remove", "Remove ACLs."),
    Option("list", "List the ACLs of a resource, or all."),
    Option("operation", "Operation to allow or deny; may be repeated.", "", default="All"),
    Option("allow-principal", "Principal to allow, TYPE:NAME; may be repeated.", "allow-principal"),
    Option("deny-principal", "Principal to deny, TYPE:NAME; may be repeated.", "deny-principal"),
    Option("principal", "With --list: only ACLs of this principal; may be repeated.", "principal", optional=True),
    Option("allow-host", "Host of the allowed principals (default: all).", "allow-host"),
    Option("deny-host", "Host of the denied principals (default: all).", "deny-host"),
    Option("producer", "All ACLs of a producer: WRITE, DESCRIBE and CREATE of a topic."),
    Option("consumer", "All ACLs of a consumer: READ and DESCRIBE of a topic, READ of a group."),
    Option("force", "Do not ask for confirmation."),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to manage acls on kafka.", _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    action = next(name for name in _ACTIONS if name in given)
    try:
        with admin(given["bootstrap-server"] or given["bootstrap-controller"], admin_of(given)) as client:
            {"add": _add, "remove": _remove, "list": _list}[action](given, client)
    except (KafkaError, OttlaError, Failed, Refused) as error:
        print(f"Error while executing ACL command: {caused(error)}")
        return 1
    return 0


_ACTIONS = ("add", "remove", "list")


def _check(given: Given) -> None:
    both = [name in given for name in ("bootstrap-server", "bootstrap-controller")]
    if all(both):
        raise Usage("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not any(both):
        raise Usage("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(action in given for action in _ACTIONS) != 1:
        raise Usage("Command must include exactly one action: --list, --add, --remove. ")
    forbid(given, "list", ("producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"))
    for role in ("producer", "consumer"):
        forbid(given, role, ("operation", "deny-principal", "deny-host"))
    if "principal" in given and "list" not in given:
        raise Usage("The --principal option is only available if --list is set")
    if "producer" in given and "topic" not in given:
        raise Usage("With --producer you must specify a --topic")
    if "idempotent" in given and "producer" not in given:
        raise Usage("The --idempotent option is only available if --producer is set")
    elsewhere = "producer" not in given and ("cluster" in given or "transactional-id" in given)
    if "consumer" in given and ("topic" not in given or "group" not in given or elsewhere):
        raise Usage(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


# ---- what is meant: resources as (type, name, pattern type), entries as (principal, host, operation, permission)

Resource = tuple[str, str, str]
Entry = tuple[str, str, str, str]


def _resources(given: Given, *, needed: bool) -> list[Resource]:
    pattern = given["resource-pattern-type"]
    resources = [("TOPIC", name.strip(), pattern) for name in given.values("topic")]
    if pattern == "LITERAL" and ("cluster" in given or "idempotent" in given):
        resources.append(("CLUSTER", _CLUSTER, "LITERAL"))
    for kind, option in (
        ("GROUP", "group"),
        ("TRANSACTIONAL_ID", "transactional-id"),
        ("DELEGATION_TOKEN", "delegation-token"),
        ("USER", "user-principal"),
    ):
        resources += [(kind, name.strip(), pattern) for name in given.values(option)]
    if not resources and needed:
        raise Usage(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return resources


def _wanted(given: Given) -> dict[Resource, list[Entry]]:
    from ottla.operations.access import CONSUMER, CONSUMER_GROUP, PRODUCER, TRANSACTIONAL_PRODUCER

    resources = _resources(given, needed=True)
    wanted: dict[Resource, list[Entry]] = {}
    if "producer" not in given and "consumer" not in given:
        operations = [_operation(operation) for operation in given.values("operation") or ["All"]]
        wanted = {resource: _entries(given, operations) for resource in resources}
    if "producer" in given:
        for resource in resources:
            if resource[0] == "TOPIC":
                wanted[resource] = _entries(given, _names(PRODUCER))
            elif resource[0] == "TRANSACTIONAL_ID":
                wanted[resource] = _entries(given, _names(TRANSACTIONAL_PRODUCER))
        if "idempotent" in given:
            wanted["CLUSTER", _CLUSTER, "LITERAL"] = _entries(given, ["IDEMPOTENT_WRITE"])
    if "consumer" in given:
        for resource in resources:
            if resource[0] in ("TOPIC", "GROUP"):
                operations = _names(CONSUMER if resource[0] == "TOPIC" else CONSUMER_GROUP)
                wanted[resource] = list(dict.fromkeys([*wanted.get(resource, []), *_entries(given, operations)]))
    for (kind, _, _), entries in wanted.items():
        if any(entry[2] not in (*_OPERATIONS[kind], "ALL") for entry in entries):
            raise Usage(f"ResourceType {kind} only supports operations [{', '.join((*_OPERATIONS[kind], 'ALL'))}]")
    return wanted


def _names(operations: Iterable[AclOperation]) -> list[str]:
    return [operation.name for operation in operations]


def _operation(text: str) -> str:
    from ottla.client.admin.acl import AclOperation

    # Kafka accepts Read, ReadAll, READ_ALL and read_all alike.
    name = (
        "".join(f"_{character}" if character.isupper() else character for character in text.strip())
        if not text.isupper()
        else text
    )
    name = name.strip("_").upper()
    if name not in AclOperation.__members__ or name == "ANY":
        raise Failed(f"'{text}' is not a valid acl operation")
    return name


def _entries(given: Given, operations: Iterable[str]) -> list[Entry]:
    entries = []
    for permission, who, where in (("ALLOW", "allow-principal", "allow-host"), ("DENY", "deny-principal", "deny-host")):
        hosts = [text.strip() for text in given.values(where)] or ["*"]
        entries += [
            (_principal(principal), host, operation, permission)
            for principal in given.values(who)
            for operation in operations
            for host in hosts
        ]
    return list(dict.fromkeys(entries))


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind:
        raise Failed(f"expected a string in format principalType:principalName but got {text.strip()}")
    return f"{kind}:{name}"


# ---- in Java's words


def _shpattern(resource: Resource) -> str:
    return f"ResourcePattern(resourceType={resource[0]}, name={resource[1]}, patternType={resource[2]})"


def _shentry(entry: Entry) -> str:
    principal, host, operation, permission = entry
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def _split(acl: Acl) -> tuple[Resource, Entry]:
    resource = (acl.resource.name, acl.name, acl.pattern.name)
    return resource, (acl.principal, acl.host, acl.operation.name, acl.permission.name)


def _filter(resource: Resource, entry: Entry | None = None) -> AclFilter:
    from ottla.client.admin.acl import AclFilter, AclOperation, AclPermission, AclResource, PatternType

    kind, name, pattern = resource
    if entry is None:
        return AclFilter(AclResource[kind], name, pattern=PatternType[pattern])
    principal, host, operation, permission = entry
    what = AclOperation[operation], AclPermission[permission]
    return AclFilter(AclResource[kind], name, principal, *what, PatternType[pattern], host)


# ---- the actions


def _add(given: Given, client: Admin) -> None:
    from ottla.client.admin.acl import Acl, AclOperation, AclPermission, AclResource, PatternType

    pattern = given["resource-pattern-type"]
    if pattern in ("ANY", "MATCH"):
        raise Usage(f"A '--resource-pattern-type' value of '{pattern}' is not valid when adding acls.")
    wanted = _wanted(given)
    if not all(wanted.values()):
        raise Usage("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    for resource, entries in wanted.items():
        there = {_split(acl)[1] for acl in client.describe_acls(_filter(resource))}
        for entry in entries:
            if entry in there:
                print(f"Acl (pattern={_shpattern(resource)}, entry={_shentry(entry)}) already exists.")
        new = [entry for entry in entries if entry not in there]
        if not new:
            continue
        lines = "\n".join(f"\t{_shentry(entry)}" for entry in new)
        print(f"Adding ACLs for resource `{_shpattern(resource)}`: \n {lines}\n")
        kind, name, how = AclResource[resource[0]], resource[1], PatternType[resource[2]]
        client.create_acls(
            Acl(kind, name, principal, AclOperation[operation], AclPermission[permission], how, host)
            for principal, host, operation, permission in new
        ).check()


def _remove(given: Given, client: Admin) -> None:
    for resource, entries in _wanted(given).items():
        shown = f"resource filter `{_shpattern(resource)}`? (y/n)"
        if not entries:
            question = f"Are you sure you want to delete all ACLs for {shown}"
            filters = [_filter(resource)]
        else:
            lines = "\n".join(f"\t{_shentry(entry)}" for entry in entries)
            question = f"Are you sure you want to remove ACLs: \n {lines}\n from {shown}"
            filters = [_filter(resource, entry) for entry in entries]
        if "force" in given or _confirmed(question):
            client.delete_acls(filters).check()


def _confirmed(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(given: Given, client: Admin) -> None:
    resources = _resources(given, needed=False)
    acls = [acl for resource in resources for acl in client.describe_acls(_filter(resource))]
    if not resources:
        acls = client.describe_acls()
    by_resource: dict[Resource, list[Entry]] = {}
    for acl in acls:
        resource, entry = _split(acl)
        if entry not in by_resource.setdefault(resource, []):
            by_resource[resource].append(entry)
    principals = [_principal(text) for text in given.values("principal")]
    if not principals:
        _print(by_resource)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        own = {
            pattern: [entry for entry in entries if entry[0] == principal] for pattern, entries in by_resource.items()
        }
        _print({pattern: entries for pattern, entries in own.items() if entries})


def _print(by_resource: dict[Resource, list[Entry]]) -> None:
    for resource, entries in by_resource.items():
        lines = "\n".join(f"\t{_shentry(entry)}" for entry in entries)
        print(f"Current ACLs for resource `{_shpattern(resource)}`:\n{lines}\n")
