"""The admin calls for client quotas (KIP-546).

An entity is a mapping from its types ("user", "client-id", "ip") to names; the name None means the default entity of
that type: `{"user": "ann", "client-id": None}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.call import Calls, collect
from ottla.client.admin.result import Results
from ottla.kernel.client_error import check, error_of
from ottla.kernel.frozen import frozen
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from ottla.wire.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

#: Match types of an entity's parts.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@frozen
class QuotaEntity:
    """The entity of a quota: sorted (type, name) pairs; the name None is the default entity."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """An entity from a mapping such as `{"user": "ann"}`."""
        return cls(tuple(sorted(parts.items())))


@frozen
class AnyName:
    """Filter value that matches every name of a type, and its default entity."""


class QuotaCalls(Calls):
    """The part of `AsyncAdmin` for client quotas."""

    async def describe_client_quotas(
        self, parts: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of the entities with these parts (default: of all entities).

        `strict` excludes entities that have other parts as well.
        """
        components = []
        for part, name in (parts or {}).items():
            kind = _ANY if isinstance(name, AnyName) else _DEFAULT if name is None else _EXACT
            components.append(
                ComponentData(entity_type=part, match_type=kind, match=name if isinstance(name, str) else None)
            )
        response = await self._any(
            DescribeClientQuotasRequest(components=components, strict=strict),
            DescribeClientQuotasResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        return {
            QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): {
                quota.key: quota.value for quota in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Iterable[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
    ) -> Results[QuotaEntity, None]:
        """Set quotas by entity: `producer_byte_rate` and `consumer_byte_rate` (bytes per second), `request_percentage`
        and others.

        The value None removes a quota. With `validate_only`, only check the changes.
        """
        wanted = list(changes)
        entries = [
            RequestEntryData(
                entity=[EntityData(entity_type=part, entity_name=name) for part, name in entity.items()],
                ops=[
                    OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in quotas.items()
                ],
            )
            for entity, quotas in wanted
        ]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        response = await self._any(request, AlterClientQuotasResponse)
        return collect(
            {
                QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): error_of(
                    entry.error_code, entry.error_message
                )
                for entry in response.entries
            },
            [QuotaEntity.of(entity) for entity, _ in wanted],
        )
