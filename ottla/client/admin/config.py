"""The admin calls for the settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ottla.client.admin.call import Calls
from ottla.client.admin.result import (
    AlterOperation,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    ResourceType,
    Results,
)
from ottla.client.connection.connection import BrokerConnection
from ottla.kernel.argument import config_text
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import KafkaError, OttlaError
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

#: Change of a setting: a value (set), None (back to the default), or an operation with its value.
Change = ConfigValue | None | tuple[AlterOperation, ConfigValue | None]

#: ConfigType in DescribeConfigs, by Kafka's names.
_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


class ConfigCalls(Calls):
    """The part of `AsyncAdmin` for settings."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Describe settings (all, or `names`) by resource and name.

        `synonyms` adds the other sources of each value, `documentation` Kafka's description.
        """
        keys = None if names is None else list(names)

        async def ask(
            connection: BrokerConnection, left: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(resource.type), resource_name=resource.name, configuration_keys=keys
                    )
                    for resource in left
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            response = await self._on(connection, request, DescribeConfigsResponse)
            return {
                ConfigResource(ResourceType(result.resource_type), result.resource_name): error_of(
                    result.error_code, result.error_message
                )
                or _entries(result)
                for result in response.results
            }

        return await self._with_retries(resources, lambda left: self._on_nodes(_by_node(left), ask))

    async def describe_config(
        self, resource: ConfigResource, names: Iterable[str] | None = None, *, synonyms: bool = False
    ) -> dict[str, ConfigEntry]:
        """Describe the settings of one resource, by name."""
        return (await self.describe_configs([resource], names, synonyms=synonyms))[resource]

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, Change]], *, validate_only: bool = False
    ) -> Results[ConfigResource, None]:
        """Change only these settings: a value sets, None restores the default (KIP-339).

        `(AlterOperation.APPEND, "compact")` and SUBTRACT change lists. With `validate_only`, only check the changes.
        """

        async def ask(
            connection: BrokerConnection, left: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(resource.type),
                        resource_name=resource.name,
                        configs=[_altered(name, change) for name, change in changes[resource].items()],
                    )
                    for resource in left
                ],
                validate_only=validate_only,
            )
            response = await self._on(connection, request, IncrementalAlterConfigsResponse)
            return {
                ConfigResource(ResourceType(result.resource_type), result.resource_name): error_of(
                    result.error_code, result.error_message
                )
                for result in response.responses
            }

        return await self._with_retries(changes, lambda left: self._on_nodes(_by_node(left), ask))

    async def alter_config(self, resource: ConfigResource, changes: Mapping[str, Change]) -> None:
        """Change settings of one resource; raises its KafkaError."""
        (await self.alter_configs({resource: changes})).check()

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """The resources of these types that have settings of their own (default: of all types the broker knows)."""
        request = ListConfigResourcesRequest(resource_types=[int(resource_type) for resource_type in types])
        response = await self._any(request, ListConfigResourcesResponse, lambda answer: check(answer.error_code))
        return [
            ConfigResource(ResourceType(resource.resource_type), resource.resource_name)
            for resource in response.config_resources
        ]


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the broker that must answer: itself for a broker's settings, any (None) for the rest."""
    by_node: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name != ""
        if own and not resource.name.isdecimal():
            raise OttlaError(f"invalid broker: {resource.name!r} (expected its id, or an empty name for all brokers)")
        by_node.setdefault(int(resource.name) if own else None, []).append(resource)
    return by_node


def _altered(name: str, change: Change) -> AlterableConfig:
    value: ConfigValue | None
    if isinstance(change, tuple) and isinstance(change[0], AlterOperation):
        operation, value = cast(tuple[AlterOperation, ConfigValue | None], change)
    else:
        operation = AlterOperation.DELETE if change is None else AlterOperation.SET
        value = cast(ConfigValue | None, change)
    return AlterableConfig(name=name, config_operation=int(operation), value=config_text(value, name))


def _entries(result: DescribeConfigsResult) -> dict[str, ConfigEntry]:
    return {
        config.name: ConfigEntry(
            config.name,
            config.value,
            _source(config.config_source),
            config.read_only,
            config.is_sensitive,
            _TYPES[config.config_type] if 0 <= config.config_type < len(_TYPES) else "unknown",
            config.documentation,
            tuple(ConfigSynonym(synonym.name, synonym.value, _source(synonym.source)) for synonym in config.synonyms),
        )
        for config in result.configs
    }


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
