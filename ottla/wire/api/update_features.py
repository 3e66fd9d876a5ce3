"""UpdateFeatures (key 57): finalize feature levels (KIP-584).

Version 1: dry runs, and types of downgrade (KIP-778); 2 all or nothing, with one top-level error (KIP-1022).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, String


@wire
class FeatureUpdateKey:
    feature: String = on("0+", default="")
    max_version_level: Int16 = on("0+", default=0)
    allow_downgrade: Boolean = on("0", default=False)
    upgrade_type: Int8 = on("1+", default=1)


@wire(versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = on("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = on("0+", factory=list)
    validate_only: Boolean = on("1+", default=False)


@wire
class UpdatableFeatureResult:
    feature: String = on("0+", default="")
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")


@wire(versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    results: list[UpdatableFeatureResult] = on("0-1", factory=list, ignorable=True)
