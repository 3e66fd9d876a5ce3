"""Metadata records of brokers and controllers: who they are, where they are, whether they serve.

The rest of the metadata records, and how a record stands in the log, is in `metadata`.
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
    """An incarnation of a broker, fenced at first. Its epoch is the offset of this record."""

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
    """A broker is forgotten."""

    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class FenceBrokerRecord:
    """A broker is fenced. No longer written (BrokerRegistrationChangeRecord), still replayed."""

    id: Int32 = on("0+", default=0)
    epoch: Int64 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """A broker is unfenced. No longer written (BrokerRegistrationChangeRecord), still replayed."""

    id: Int32 = on("0+", default=0)
    epoch: Int64 = on("0+", default=0)


@wire(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """What changes of a registration. `fenced`: -1 unfenced, 0 as before, 1 fenced; so too `in_controlled_shutdown`."""

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
    """A controller is forgotten (4.4)."""

    controller_id: Int32 = on("0+", default=0)
