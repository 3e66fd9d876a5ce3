"""`kafka-configs --describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.configs.config_entity import QUOTA_NAMES, RESOURCES, Entities
from ottla.cli.kafka.program.tool import Failed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.java import java_double
from ottla.operations.configs import own

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.quota import QuotaEntity
    from ottla.client.admin.result import ConfigEntry

#: Kinds by the names that the tool gives them.
RESOURCE_TYPES = {
    "topics": "TOPIC",
    "brokers": "BROKER",
    "broker-loggers": "BROKER_LOGGER",
    "client-metrics": "CLIENT_METRICS",
    "groups": "GROUP",
}


def describe(client: Admin, entities: Entities, *, everything: bool) -> None:
    """Print the settings of the entities."""
    if entities.kind in RESOURCES:
        _describe_resources(client, entities, everything=everything)
        return
    describe_quotas(client, entities)
    if "clients" not in entities.kinds and entities.kind == "users" and "" not in entities.names:
        _describe_credentials(client, entities.names)


def _describe_resources(client: Admin, entities: Entities, *, everything: bool) -> None:
    kind = entities.kind
    if entities.names:
        name = entities.names[0]
        if not everything and name not in _names(client, kind) and not (kind in _OF_BROKERS and name == ""):
            print(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
            return
        names = [name]
    else:
        names = _names(client, kind) + ([""] if kind in _OF_BROKERS else [])
    for name in names:
        if name:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {name} are:")
        else:
            print(f"Default configs for {kind} in the cluster are:")
        for entry in settings_of(client, kind, name, everything=everything):
            value = "null" if entry.value is None else entry.value
            synonyms = ", ".join(
                f"{synonym.source.name}:{synonym.name}={'null' if synonym.value is None else synonym.value}"
                for synonym in entry.synonyms
            )
            print(f"  {entry.name}={value} sensitive={str(entry.sensitive).lower()} synonyms={{{synonyms}}}")


_OF_BROKERS = ("brokers", "broker-loggers")


def _names(client: Admin, kind: str) -> list[str]:
    """Return the names of all entities of a type."""
    from ottla.client import ResourceType

    if kind == "topics":
        return [topic.name for topic in client.list_topics(internal=True)]
    if kind in _OF_BROKERS:
        return [str(node.id) for node in client.describe_cluster().nodes]
    if kind == "client-metrics":
        return sorted(resource.name for resource in client.list_config_resources([ResourceType.CLIENT_METRICS]))
    groups = {group.id for group in client.list_groups()}
    try:
        groups |= {resource.name for resource in client.list_config_resources([ResourceType.GROUP])}
    except KafkaError as error:
        # Brokers before 4.1 list client metrics alone (KIP-1142).
        if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise
    return sorted(groups)


def settings_of(client: Admin, kind: str, name: str, *, everything: bool) -> list[ConfigEntry]:
    """Return the settings of an entity, sorted by name; only those set on it, unless `everything`."""
    from ottla.client import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType[RESOURCE_TYPES[kind]], name)
    entries = client.describe_config(resource, synonyms=True)
    if not everything:
        entries = own(entries, resource)
    return [entries[entry] for entry in sorted(entries)]


_PRINCIPALS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


def describe_quotas(client: Admin, entities: Entities) -> None:
    """Print a line for each entity that has quotas."""
    for entity, quotas in sorted(quotas_of(client, entities).items(), key=str):
        parts = []
        names = dict(entity.parts)
        for kind, words in _PRINCIPALS.items():
            if kind in names:
                parts.append(f"the default {words}" if names[kind] is None else f"{words} '{names[kind]}'")
        shown = ", ".join(f"{name}={java_double(value)}" for name, value in sorted(quotas.items()))
        print(f"Quota configs for {', '.join(parts)} are {shown}")


def quotas_of(client: Admin, entities: Entities) -> dict[QuotaEntity, dict[str, float]]:
    """Return the quotas of exactly these entities, and of no other combination."""
    from ottla.client.admin.quota import AnyName

    if len(entities.names) > len(entities.kinds):
        raise Failed("More entity names specified than entity types")
    components: dict[str, str | AnyName | None] = {}
    for index, kind in enumerate(entities.kinds):
        named = entities.names[index] if index < len(entities.names) else AnyName()
        components[QUOTA_NAMES[kind]] = None if named == "" else named
    return client.describe_client_quotas(components, strict=True)


def _describe_credentials(client: Admin, names: list[str]) -> None:
    results = client.describe_scram_credentials(names or None)
    for user, error in results.errors.items():
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            print(f"Error retrieving SCRAM credential configs for user-principal '{user}': {_simple(error)}")
    for user, credentials in results.succeeded.items():
        shown = ", ".join(
            f"{mechanism.name.replace('_', '-')}=iterations={iterations}"
            for mechanism, iterations in credentials.items()
        )
        print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _simple(error: KafkaError) -> str:
    from ottla.cli.kafka.program.error import java_class, message

    return f"{java_class(error).rpartition('.')[2]}: {message(error)}"
