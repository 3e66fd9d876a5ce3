"""Features and their levels: those this program supports, those of a new cluster, and their dependencies (KIP-584).

Rules:
- `metadata.version` determines which records may be written, and in which version. The lowest is 3.3; the highest is
  the one with which Apache Kafka 4.3.1 creates clusters.
- `kraft.version` is not a metadata record: it is in the control records of the metadata log (KIP-853).
- A level may be lowered only if no record that the higher level may have written would be lost.
"""

from __future__ import annotations

from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple
from ottla.metadata.image import METADATA_VERSION
from ottla.wire.record.metadata import FeatureLevelRecord

KRAFT_VERSION = "kraft.version"


class Release(NamedTuple):
    """A level of `metadata.version`."""

    release: str
    #: Its number within the release, such as 2 in 4.0-IV2.
    step: int
    #: This level can write records that the level below cannot read.
    changes_records: bool

    @property
    def text(self) -> str:
        return f"{self.release}-IV{self.step}"


#: Level -> release, from 3.3 (the lowest that 4.x supports) to that of 4.3.1.
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
#: Not yet final; only with `unstable.feature.versions.enable`. It has no changes yet.
METADATA_VERSION_UNSTABLE = 31
METADATA_VERSIONS[METADATA_VERSION_UNSTABLE] = Release("4.4", 0, False)

#: The lowest level of `metadata.version` for each of these records or fields.
SCRAM_FROM = 11
TRANSACTIONS_FROM = 13
TOKENS_FROM = 14
CONTROLLER_REGISTRATIONS_FROM = 15
DIRECTORIES_FROM = 17
ELR_FROM = 23
CORDONED_DIRECTORIES_FROM = 30

#: Feature -> (lowest, highest) supported level.
SUPPORTED: dict[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_LEAST, METADATA_VERSION_LATEST),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: Feature -> (its default level, the metadata.version from which it is the default).
_DEFAULTS: dict[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (1, 26),
    "group.version": (1, 22),
    "share.version": (1, 28),
    "streams.version": (1, 29),
    "transaction.version": (2, 24),
}

#: The level of `metadata.version` from which `kraft.version` 1 is the default.
_KRAFT_VERSION_FROM = 21
#: (feature, level) -> the metadata.version that it requires.
_NEEDS: dict[tuple[str, int], int] = {("eligible.leader.replicas.version", 1): ELR_FROM}


def supported(*, unstable: bool) -> dict[str, tuple[int, int]]:
    """Return feature -> (lowest, highest) supported level; `unstable` is `unstable.feature.versions.enable`."""
    if not unstable:
        return SUPPORTED
    return SUPPORTED | {METADATA_VERSION: (METADATA_VERSION_LEAST, METADATA_VERSION_UNSTABLE)}


def release_level(text: str, *, unstable: bool = False) -> int:
    """Return the level of a release such as `4.3`, `4.3.1` or `4.0-IV2`. Raise OttlaError if it is unknown."""
    key = ".".join(text.split(".")[:2])
    _, highest = supported(unstable=unstable)[METADATA_VERSION]
    releases = {level: release for level, release in METADATA_VERSIONS.items() if level <= highest}
    for level, release in reversed(releases.items()):
        if key in (release.text, release.release):
            return level
    known = ", ".join(release.text for release in releases.values())
    raise OttlaError(f"Unknown metadata.version {text!r}. Supported metadata.version are: {known}")


def default_levels(metadata_version: int) -> dict[str, int]:
    """Return feature -> its default level at a level of `metadata.version`, in the order of Kafka's tools."""
    levels = {METADATA_VERSION: metadata_version, KRAFT_VERSION: int(metadata_version >= _KRAFT_VERSION_FROM)}
    for feature in ("transaction.version", "group.version", "eligible.leader.replicas.version", "share.version"):
        levels[feature] = 0
    for feature, (level, since) in _DEFAULTS.items():
        levels[feature] = level if metadata_version >= since else 0
    return levels


def needed(feature: str, level: int) -> dict[str, int]:
    """Return the levels of other features that this one requires."""
    least = _NEEDS.get((feature, level))
    return {} if least is None else {METADATA_VERSION: least}


def new_cluster_levels(metadata_version: int, chosen: dict[str, int]) -> dict[str, int]:
    """Return feature -> level for a new cluster, without kraft.version. Raise OttlaError for an invalid choice."""
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
        missing = missing_for(feature, level, levels[METADATA_VERSION])
        if missing:
            raise OttlaError(missing)
    return {feature: level for feature, level in levels.items() if level > 0}


def feature_records(levels: dict[str, int]) -> list[FeatureLevelRecord]:
    """Return the records of the levels, metadata.version first: it determines how to read the others."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names]


def missing_for(feature: str, level: int, metadata_version: int) -> str:
    """Return why a feature's level cannot be set at this metadata.version; empty if it can."""
    needed = _NEEDS.get((feature, level), 0)
    if metadata_version < needed:
        return f"{feature} could not be set to {level} because it depends on metadata.version level {needed}"
    return ""
