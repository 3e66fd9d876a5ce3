"""Metadata records of brokers and controllers: identity, endpoints, and fencing.

The other metadata records, and the framing, are in `metadata`.
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, Int64, String, Uint16, Uuid


@wire
class BrokerEndpoint:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)
    security_protocol: Int16 = on("0+", default=0)


@wire
class BrokerFeature:
    name: String = on("0+", default="")
    min_supported_version: Int16 = on("0+", default=0)
    max_supported_version: Int16 = on("0+", default=0)


@wire(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """The registration of a broker's incarnation, fenced at first. Its epoch is the offset of this record."""

    broker_id: Int32 = on("0+", default=0)
    is_migrating_zk_broker: Boolean = on("2+", default=False)
    incarnation_id: Uuid = on("0+", default=NO_UUID)
    broker_epoch: Int64 = on("0+", default=0)
    end_points: list[BrokerEndpoint] = on("0+", factory=list)
    features: list[BrokerFeature] = on("0+", factory=list)
    rack: String | None = on("0+", default="")
    fenced: Boolean = on("0+", default=True)
    in_controlled_shutdown: Boolean = on("1+", default=False)
    log_dirs: list[Uuid] = on("3+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = on("4+", default=None, tag=1)


@wire(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """The removal of a broker's registration."""

    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class FenceBrokerRecord:
    """The fencing of a broker. Replaced by BrokerRegistrationChangeRecord, but still replayed."""

    id: Int32 = on("0+", default=0)
    epoch: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """The unfencing of a broker. Replaced by BrokerRegistrationChangeRecord, but still replayed."""

    id: Int32 = on("0+", default=0)
    epoch: Int64 = on("0+", default=0)


@wire(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """A change of a registration. `fenced` and `in_controlled_shutdown`: 1 sets, -1 clears, 0 leaves unchanged."""

    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=0)
    fenced: Int8 = on("0+", default=0, tag=0)
    in_controlled_shutdown: Int8 = on("1+", default=0, tag=1)
    log_dirs: list[Uuid] = on("2+", factory=list, tag=2)
    cordoned_log_dirs: list[Uuid] | None = on("3+", default=None, tag=3)


@wire
class ControllerEndpoint:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)
    security_protocol: Int16 = on("0+", default=0)


@wire
class ControllerFeature:
    name: String = on("0+", default="")
    min_supported_version: Int16 = on("0+", default=0)
    max_supported_version: Int16 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller's incarnation, endpoints and features (KIP-919)."""

    controller_id: Int32 = on("0+", default=0)
    incarnation_id: Uuid = on("0+", default=NO_UUID)
    zk_migration_ready: Boolean = on("0+", default=False)
    end_points: list[ControllerEndpoint] = on("0+", factory=list)
    features: list[ControllerFeature] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class UnregisterControllerRecord:
    """The removal of a controller's registration (4.4)."""

    controller_id: Int32 = on("0+", default=0)
