"""Feature levels (KIP-584): those of a release, and checked changes.

    set_levels(admin, levels_of("4.3"))

`admin.describe_features()` returns the levels in force and those that the brokers support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin


def levels_of(release: str | None = None) -> dict[str, int]:
    """Return feature -> its level in a release, `4.3` or `4.3-IV0`, metadata.version first; 0: off in the release.

    None: the latest release. OttlaError: there is no such release.
    """
    from ottla.metadata.feature import METADATA_VERSION_LATEST, default_levels, release_level

    return default_levels(METADATA_VERSION_LATEST if release is None else release_level(release))


def set_levels(ask: Admin, levels: Mapping[str, int], *, downgrade: bool = False, dry_run: bool = False) -> None:
    """Set the levels of features, all or none; level 0 disables a feature. `dry_run` only validates.

    `downgrade`: allow a lower level if no metadata is lost. OttlaError: a level is lower, without `downgrade`.
    KafkaError: the first change that the controller refuses.
    """
    from ottla.client.admin.result import Downgrade

    now = ask.describe_features()
    lower = [name for name, level in levels.items() if name in now and level < (now[name].finalized or 0)]
    if lower and not downgrade:
        raise OttlaError(f"{lower[0]} would go down; add --downgrade to allow it if no metadata is lost")
    ask.update_features(levels, downgrade=Downgrade.SAFE if downgrade else Downgrade.NO, validate_only=dry_run).check()
