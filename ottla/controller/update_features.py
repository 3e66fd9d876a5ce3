"""UpdateFeatures (key 57): upgrades and downgrades of feature levels (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.controller.decision import Decision, message_or_none
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.metadata.feature import (
    CONTROLLER_REGISTRATIONS_FROM,
    KRAFT_VERSION,
    METADATA_VERSIONS,
    SUPPORTED,
    missing_for,
    supported,
)
from ottla.metadata.image import BROKER, METADATA_VERSION, NO_LEADER, Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.record.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord, PartitionChangeRecord

_FAILED = "The update failed for all features since the following feature had an error: "
_ELR, _MIN_ISR = "eligible.leader.replicas.version", "min.insync.replicas"
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    image: Image,
    settings: ServerSettings,
    quorum: QuorumLevel,
    request: UpdateFeaturesRequest,
    version: int,
) -> Decision:
    """Update all features of the request, or none (KIP-1022)."""
    kraft_version, voters = quorum.kraft_version, quorum.voters
    cluster = _Cluster(image, settings, voters)
    proposed = dict(image.features)
    before = {**image.features, KRAFT_VERSION: kraft_version}
    records: list[Any] = []
    try:
        names = [update.feature for update in request.feature_updates]
        # The last update of a feature counts, as in Apache Kafka.
        updates = {update.feature: update for update in request.feature_updates}
        proposed.update((name, update.max_version_level) for name, update in updates.items())
        for update in updates.values():
            records += _update(before, cluster, update, _upgrade_type(update, version), proposed, quorum.refusal)
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
    target = proposed.get(KRAFT_VERSION, kraft_version)
    if _ELR in updates and updates[_ELR].max_version_level > 0:
        records = [*_elr_config_records(image, settings), *records, *_no_longer_eligible(image)]
    return Decision(records, response, None if target == kraft_version else target)


class QuorumLevel(NamedTuple):
    """What the quorum says of its kraft.version, which is not a metadata record (KIP-853)."""

    kraft_version: int
    #: The ids of the voters.
    voters: Iterable[int]
    #: Return why kraft.version cannot be raised to this level now; None if it can.
    refusal: Callable[[int], str | None]


class _Cluster:
    """The features that the nodes of the cluster support."""

    def __init__(self, image: Image, settings: ServerSettings, voters: Iterable[int]) -> None:
        node_id = settings.node_id
        self._nodes: list[tuple[str, Mapping[str, tuple[int, int]]]] = [
            (f"Local controller {node_id}", supported(unstable=settings.unstable_feature_versions_enable))
        ]
        for broker_id, broker in image.brokers.items():
            self._nodes.append((f"Broker {broker_id}", {name: (low, high) for name, low, high in broker.features}))
        self._unregistered_voters: list[int] = []
        if image.metadata_version >= CONTROLLER_REGISTRATIONS_FROM:
            others = {key: feature for key, feature in image.controllers.items() if key != node_id}
            for controller_id, controller in others.items():
                ranges = {
                    feature.name: (feature.min_supported_version, feature.max_supported_version)
                    for feature in controller.features
                }
                self._nodes.append((f"Controller {controller_id}", ranges))
            self._unregistered_voters = [voter for voter in voters if voter != node_id and voter not in others]

    def check(self, name: str, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION unless every node supports the feature at this level."""
        for node, ranges in self._nodes:
            low, high = ranges.get(name, (0, 0))
            if not low <= level <= high:
                span = f"{low}-{high}" if low != high else f"{low}"
                why = f"only supports versions {span}" if high else "does not support this feature."
                raise _invalid(name, level, f"{node} {why}")
        for voter in self._unregistered_voters:
            why = f"controller {voter} has not registered, and may not support this feature"
            raise _invalid(name, level, why)


def _elr_config_records(image: Image, settings: ServerSettings) -> list[Any]:
    """Return the records that set min.insync.replicas for the cluster, which ELR needs, and unset it for brokers."""
    records = []
    if _MIN_ISR not in image.config(BROKER, ""):
        value = str(settings.min_insync_replicas)
        records.append(ConfigRecord(resource_type=BROKER, resource_name="", name=_MIN_ISR, value=value))
    records += [
        ConfigRecord(resource_type=BROKER, resource_name=name, name=_MIN_ISR, value=None)
        for name in image.config_names(BROKER)
        if name and _MIN_ISR in image.config(BROKER, name)
    ]
    return records


def _no_longer_eligible(image: Image) -> list[Any]:
    """Return the records that clear the ELR of the partitions that are led; none while ELR is enabled (0410).

    While it was not, a change of min.insync.replicas cleared no ELR, and the leader may have committed records alone.
    """
    if image.has_elr:
        return []
    return [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, eligible_leader_replicas=[])
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader != NO_LEADER and partition.eligible_leader_replicas
    ]


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    return update.upgrade_type


def _update(
    before: Mapping[str, int],
    cluster: _Cluster,
    update: FeatureUpdateKey,
    upgrade_type: int,
    proposed: dict[str, int],
    kraft_refusal: Callable[[int], str | None],
) -> list[Any]:
    name, new = update.feature, update.max_version_level
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(name, new, "The controller does not support the given upgrade type.")
    current = before.get(name, 0)
    if new < 0:
        raise _invalid(name, new, "A feature version cannot be less than 0.")
    cluster.check(name, new)
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
            refusal = kraft_refusal(new)
            if refusal is not None:
                raise _invalid(name, new, refusal)
            return [NoOpRecord()]  # The level is a control record; the request completes when this record is committed.
        if new != current:
            raise _invalid(name, new, "Can't downgrade the version of this feature.")
        return []
    if name == METADATA_VERSION:
        _check_metadata_version(current, new, unsafe=upgrade_type == _UNSAFE_DOWNGRADE)
    elif name not in SUPPORTED:
        raise _invalid(name, new, f"Feature {name} not found.")
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
