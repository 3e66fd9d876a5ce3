"""UpdateFeatures (key 57): what an upgrade or a downgrade of a feature's level may do (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.controller.decision import Decision, message_or_none
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.feature import KRAFT_VERSION, METADATA_VERSIONS, missing_for, supported
from ottla.metadata.image import METADATA_VERSION, Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.record.metadata import FeatureLevelRecord, NoOpRecord

_FAILED = "The update failed for all features since the following feature had an error: "
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    image: Image, settings: ServerSettings, kraft_version: int, request: UpdateFeaturesRequest, version: int
) -> Decision:
    """UpdateFeatures (key 57): all of them or none (KIP-1022). `kraft_version` is the quorum's level now (KIP-853)."""
    node_id, able = settings.node_id, supported(unstable=settings.unstable_feature_versions_enable)
    proposed = dict(image.features)
    before = {**image.features, KRAFT_VERSION: kraft_version}
    records: list[Any] = []
    try:
        names = [each.feature for each in request.feature_updates]
        if len(set(names)) != len(names):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature stands twice in the request")
        proposed.update((each.feature, each.max_version_level) for each in request.feature_updates)
        for update in request.feature_updates:
            records += _update(before, node_id, able, update, _upgrade_type(update, version), proposed)
    except KafkaError as error:
        return Decision(
            [],
            UpdateFeaturesResponse(
                error_code=error.code, error_message=_FAILED + (message_or_none(error) or error.code.name)
            ),
        )
    results = [UpdatableFeatureResult(feature=name, error_message="NONE") for name in names] if version < 2 else []
    response = UpdateFeaturesResponse(error_message=None, results=results)
    if request.validate_only:
        return Decision([], response)
    wanted = proposed.get(KRAFT_VERSION, kraft_version)
    return Decision(records, response, None if wanted == kraft_version else wanted)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    return update.upgrade_type


def _update(
    before: Mapping[str, int],
    node_id: int,
    able: Mapping[str, tuple[int, int]],
    update: FeatureUpdateKey,
    upgrade_type: int,
    proposed: dict[str, int],
) -> list[Any]:
    name, new = update.feature, update.max_version_level
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(name, new, "The controller does not support the given upgrade type.")
    current = before.get(name, 0)
    if new < 0:
        raise _invalid(name, new, "A feature version cannot be less than 0.")
    if name not in able:
        raise _invalid(name, new, f"Local controller {node_id} does not support this feature.")
    low, high = able[name]
    if not low <= new <= high:
        raise _invalid(name, new, f"Local controller {node_id} only supports versions {low}-{high}")
    if new < current and upgrade_type == _UPGRADE:
        raise _invalid(
            name,
            new,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if new > current and upgrade_type != _UPGRADE:
        raise _invalid(name, new, "Can't downgrade to a newer version.")
    if name == KRAFT_VERSION:
        if upgrade_type == _UPGRADE:
            return [NoOpRecord()]  # The level is a control record; what is asked for is done when this is committed.
        if new != current:
            raise _invalid(name, new, "Can't downgrade the version of this feature.")
        return []
    if name == METADATA_VERSION:
        _check_metadata_version(current, new, unsafe=upgrade_type == _UNSAFE_DOWNGRADE)
    else:
        missing = missing_for(name, new, proposed[METADATA_VERSION])
        if missing:
            raise _invalid(name, new, missing)
    return [FeatureLevelRecord(name=name, feature_level=new)]


def _check_metadata_version(current: int, new: int, *, unsafe: bool) -> None:
    lost = [level for level in range(new + 1, current + 1) if METADATA_VERSIONS[level].changes_records]
    if lost:
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {new}. {reason}",
        )


def _invalid(feature: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {feature}. {why}")
