"""Client quotas in the metadata: AlterClientQuotas (key 49) and DescribeClientQuotas (key 48).

Rules:
- An entity is a user, a client id, both, or an IP; a name of None is the default of its kind.
- An entity fails alone and as a whole. Unchanged quotas are not written.
- Byte rates and connection rates are whole numbers; the other two are not. All must be greater than 0.

KIPs: 13, 55 user and client quotas, 546 this API, 599 controller mutations, 612 connections by IP.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.controller.decision import Decision, check_size, message_or_none
from ottla.kernel.address import canonical_address
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.validators import INT_MAX, LONG_MAX
from ottla.metadata.image import Image, QuotaEntity
from ottla.settings.quota import AddressQuotas, UserQuotas
from ottla.settings.schema import ConfigType, Setting
from ottla.wire.record.metadata import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from ottla.wire.api import alter_client_quotas as alter
    from ottla.wire.api import describe_client_quotas as describe
else:
    alter = LazyModule("ottla.wire.api.alter_client_quotas")
    describe = LazyModule("ottla.wire.api.describe_client_quotas")

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = UserQuotas.producer_byte_rate.name
CONSUMER_BYTE_RATE = UserQuotas.consumer_byte_rate.name
REQUEST_PERCENTAGE = UserQuotas.request_percentage.name
CONTROLLER_MUTATION_RATE = UserQuotas.controller_mutation_rate.name
CONNECTION_CREATION_RATE = AddressQuotas.connection_creation_rate.name

#: Whole numbers: the largest value, and the name of the type.
_WHOLE = {ConfigType.LONG: (LONG_MAX, "a LONG"), ConfigType.INT: (INT_MAX, "an INT")}
_FRACTION = 1e-6
#: About a millisecond.
ENTITIES_PER_STEP = 150

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def alter_client_quotas(image: Image, request: alter.AlterClientQuotasRequest) -> Decision:
    """Set and remove quotas, entity by entity."""
    records: list[Any] = []
    errors: dict[QuotaEntity, KafkaError | None] = {}
    for entry in request.entries:
        entity = tuple(sorted({part.entity_type: part.entity_name for part in entry.entity}.items()))
        try:
            if entity in errors:
                raise _invalid(f"Ignoring duplicate entity {_entity_text(entity)}")
            records += _changed(image, entity, entry.ops)
            errors[entity] = None
        except KafkaError as error:
            errors[entity] = error
        check_size(records)
    response = alter.AlterClientQuotasResponse(
        entries=[
            alter.ResponseEntryData(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else message_or_none(error),
                entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, error in errors.items()
        ]
    )
    return Decision([] if request.validate_only else records, response)


def _changed(image: Image, entity: QuotaEntity, operations: list[alter.OpData]) -> list[ClientQuotaRecord]:
    changes = {operation.key: None if operation.remove else operation.value for operation in operations}
    if len(changes) < len(operations):
        raise _invalid(f"A quota key appears twice; the quotas of {_entity_text(entity)} stay as they are")
    current = image.quotas.get(entity, {})
    # A controller of Apache Kafka may have stored the quota of a host by its name.
    is_removal = bool(current) and all(value is None for value in changes.values())
    keys = _keys(entity, any_address=is_removal)
    records = []
    for key, value in changes.items():
        if value is None:
            if key not in current:
                continue
        else:
            _check_value(keys, key, value)
            if current.get(key) == value:
                continue
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        records.append(ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None))
    return records


def _keys(entity: QuotaEntity, *, any_address: bool) -> Mapping[str, Setting[Any]]:
    """Return the quotas that may be set on this entity. `any_address`: its IP need not be an address."""
    names = dict(entity)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in names:
        return UserQuotas.declared()
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    name = names[IP]
    if name is not None and not any_address and not _is_address(name):
        raise _invalid(f"{name} is not a valid IP.")
    return AddressQuotas.declared()


def _is_address(name: str) -> bool:
    try:
        canonical_address(name)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, Setting[Any]], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    # This form also rejects NaN.
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if keys[key].type in _WHOLE:
        most, kind = _WHOLE[keys[key].type]
        if value > most:
            raise _invalid(f"Proposed value for {key} is too large for {kind}.")
        if value % 1 > _FRACTION:
            raise _invalid(f"{key} cannot be a fractional value.")


def describe_client_quotas(
    image: Image, request: describe.DescribeClientQuotasRequest
) -> Generator[None, None, describe.DescribeClientQuotasResponse]:
    """Return the entities that match every component; with a strict filter, those without any other kind. In steps."""
    exact, specified = _filter(request)
    entries = []
    for number, (entity, quotas) in enumerate(image.quotas.items(), 1):
        if not number % ENTITIES_PER_STEP:
            yield
        names = dict(entity)
        if request.strict and len(names) != len(exact) + len(specified):
            continue
        if all(kind in names and names[kind] == name for kind, name in exact.items()) and specified <= names.keys():
            entries.append(
                describe.EntryData(
                    entity=[describe.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[describe.ValueData(key=key, value=value) for key, value in quotas.items()],
                )
            )
    return describe.DescribeClientQuotasResponse(entries=entries)


def _filter(request: describe.DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """Return (kind -> the required name, kinds that match any name)."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise _invalid(f"Unknown match type {component.match_type}")
        if component.match_type == _EXACT and component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if component.match_type != _EXACT and component.match is not None:
            name = "MATCH_TYPE_DEFAULT" if component.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        if component.match_type == _SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = component.match
    kinds = exact.keys() | specified
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return exact, specified


def _entity_text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
