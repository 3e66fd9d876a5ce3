"""Features and their levels: what this program can run, what a new cluster gets, and what an upgrade may do (KIP-584).

Rules:
- `metadata.version` says which records and which of their versions may be written; the lowest is 3.3 and the highest is
  what Apache Kafka 4.3.1 makes clusters with.
- `kraft.version` is not a record: it lives in the control records of the metadata log (KIP-853).
- A level goes down only when no record that the higher level may have written would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.controller.decision import Decision, message_or_none
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.metadata.image import METADATA_VERSION, Image
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.record.metadata import FeatureLevelRecord, NoOpRecord

KRAFT_VERSION = "kraft.version"


class Release(NamedTuple):
    """One level of `metadata.version`."""

    release: str
    #: Its number within the release: 4.0-IV2.
    step: int
    #: May records be written at this level that the level below cannot read?
    changes_records: bool

    @property
    def text(self) -> str:
        return f"{self.release}-IV{self.step}"


#: Level -> release, from 3.3 (the lowest that 4.x runs) to what 4.3.1 is.
METADATA_VERSIONS: dict[int, Release] = {
    7: Release("3.3", 3, True),
    8: Release("3.4", 0, True),
    9: Release("3.5", 0, False),
    10: Release("3.5", 1, False),
    11: Release("3.5", 2, True),
    12: Release("3.6", 0, False),
    13: Release("3.6", 1, True),
    14: Release("3.6", 2, True),
    15: Release("3.7", 0, True),
    16: Release("3.7", 1, False),
    17: Release("3.7", 2, True),
    18: Release("3.7", 3, False),
    19: Release("3.7", 4, False),
    20: Release("3.8", 0, False),
    21: Release("3.9", 0, False),
    22: Release("4.0", 0, False),
    23: Release("4.0", 1, True),
    24: Release("4.0", 2, False),
    25: Release("4.0", 3, False),
    26: Release("4.1", 0, False),
    27: Release("4.1", 1, False),
    28: Release("4.2", 0, False),
    29: Release("4.2", 1, False),
    30: Release("4.3", 0, True),
}
METADATA_VERSION_LEAST = min(METADATA_VERSIONS)
METADATA_VERSION_LATEST = max(METADATA_VERSIONS)

#: Levels of `metadata.version` from which something may be written.
TRANSACTIONS_FROM = 13
CONTROLLER_REGISTRATIONS_FROM = 15
DIRECTORIES_FROM = 17
ELR_FROM = 23
CORDONED_DIRECTORIES_FROM = 30

#: Feature -> (lowest, highest level) that this node can run.
SUPPORTED: dict[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_LEAST, METADATA_VERSION_LATEST),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: Feature -> (its level, the metadata.version that brings it as the default), highest first.
_DEFAULTS: dict[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (1, 26),
    "group.version": (1, 22),
    "share.version": (1, 28),
    "streams.version": (1, 29),
    "transaction.version": (2, 24),
}

#: The level of `metadata.version` that brings `kraft.version` 1 as the default.
_KRAFT_VERSION_FROM = 21
#: (feature, level) -> the metadata.version without which it cannot be.
_NEEDS: dict[tuple[str, int], int] = {("eligible.leader.replicas.version", 1): ELR_FROM}

_FAILED = "The update failed for all features since the following feature had an error: "
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def release_level(text: str) -> int:
    """The level of a release named as people name it: `4.3`, `4.3.1`, `4.0-IV2`. Raises OttlaError."""
    key = ".".join(text.split(".")[:2])
    for level, release in reversed(METADATA_VERSIONS.items()):
        if key in (release.text, release.release):
            return level
    known = ", ".join(release.text for release in METADATA_VERSIONS.values())
    raise OttlaError(f"Unknown metadata.version {text!r}. Supported metadata.version are: {known}")


def default_levels(metadata_version: int) -> dict[str, int]:
    """Feature -> its level by default at a level of `metadata.version`, in the order of Kafka's tools."""
    levels = {METADATA_VERSION: metadata_version, KRAFT_VERSION: int(metadata_version >= _KRAFT_VERSION_FROM)}
    for feature in ("transaction.version", "group.version", "eligible.leader.replicas.version", "share.version"):
        levels[feature] = 0
    for feature, (level, since) in _DEFAULTS.items():
        levels[feature] = level if metadata_version >= since else 0
    return levels


def needed(feature: str, level: int) -> dict[str, int]:
    """The levels of other features without which this one cannot be."""
    least = _NEEDS.get((feature, level))
    return {} if least is None else {METADATA_VERSION: least}


def new_cluster_levels(metadata_version: int, chosen: dict[str, int]) -> dict[str, int]:
    """Feature -> level for a cluster that is made now, without kraft.version. Raises OttlaError."""
    levels = {METADATA_VERSION: metadata_version}
    for feature, (level, since) in _DEFAULTS.items():
        if metadata_version >= since:
            levels[feature] = level
    for feature, level in chosen.items():
        if feature not in SUPPORTED:
            known = ", ".join(sorted(SUPPORTED.keys() - {METADATA_VERSION}))
            raise OttlaError(f"Unsupported feature: {feature}. Supported features are: {known}")
        low, high = SUPPORTED[feature]
        if not low <= level <= high:
            raise OttlaError(f"No feature:{feature} with feature level {level}")
        levels[feature] = level
    for feature, level in levels.items():
        missing = _missing(feature, level, levels[METADATA_VERSION])
        if missing:
            raise OttlaError(missing)
    return {feature: level for feature, level in levels.items() if level > 0}


def feature_records(levels: dict[str, int]) -> list[FeatureLevelRecord]:
    """metadata.version first, since it says how what follows is to be read."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names]


def update_features(
    image: Image, node_id: int, kraft_version: int, request: UpdateFeaturesRequest, version: int
) -> Decision:
    """UpdateFeatures (key 57): all of them or none (KIP-1022). `kraft_version` is the quorum's level now (KIP-853)."""
    proposed = dict(image.features)
    before = {**image.features, KRAFT_VERSION: kraft_version}
    records: list[Any] = []
    try:
        names = [each.feature for each in request.feature_updates]
        if len(set(names)) != len(names):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a feature stands twice in the request")
        proposed.update((each.feature, each.max_version_level) for each in request.feature_updates)
        for update in request.feature_updates:
            records += _update(before, node_id, update, _upgrade_type(update, version), proposed)
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
    before: Mapping[str, int], node_id: int, update: FeatureUpdateKey, upgrade_type: int, proposed: dict[str, int]
) -> list[Any]:
    name, new = update.feature, update.max_version_level
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(name, new, "The controller does not support the given upgrade type.")
    current = before.get(name, 0)
    if new < 0:
        raise _invalid(name, new, "A feature version cannot be less than 0.")
    if name not in SUPPORTED:
        raise _invalid(name, new, f"Local controller {node_id} does not support this feature.")
    low, high = SUPPORTED[name]
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
        missing = _missing(name, new, proposed[METADATA_VERSION])
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


def _missing(feature: str, level: int, metadata_version: int) -> str:
    """What a feature's level lacks, or nothing."""
    needed = _NEEDS.get((feature, level), 0)
    if metadata_version < needed:
        return f"{feature} could not be set to {level} because it depends on metadata.version level {needed}"
    return ""


def _invalid(feature: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {feature}. {why}")
