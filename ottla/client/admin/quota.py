"""Client quotas: the admin calls about them (KIP-546).

An entity is named by a mapping from its parts ("user", "client-id", "ip") to their names; the name None is the
default of that part: `{"user": "ann", "client-id": None}`.
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

#: How a part of an entity is matched.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@frozen
class QuotaEntity:
    """Whom a quota is for: (part, name) pairs in order; the name None is the default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """From a mapping such as `{"user": "ann"}`."""
        return cls(tuple(sorted(parts.items())))


@frozen
class AnyName:
    """In a filter: whatever name this part has, the default too."""


class QuotaCalls(Calls):
    """The part of `AsyncAdmin` about client quotas."""

    async def describe_client_quotas(
        self, parts: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas in force of the entities that have these parts; of all when none are named.

        `strict` leaves out entities that have other parts as well.
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
            QuotaEntity.of({one.entity_type: one.entity_name for one in entry.entity}): {
                one.key: one.value for one in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Iterable[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
    ) -> Results[QuotaEntity, None]:
        """For each (entity, quotas): set `producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, ...

        The value None takes a quota away.
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
                QuotaEntity.of({one.entity_type: one.entity_name for one in entry.entity}): error_of(
                    entry.error_code, entry.error_message
                )
                for entry in response.entries
            },
            [QuotaEntity.of(entity) for entity, _ in wanted],
        )
