"""`--delete` of the tools for groups: which groups can be deleted, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import java_class
from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin.result import GroupListing

#: Errors about the group as a whole.
OF_THE_GROUP = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)


def refused(kind: str, listings: Iterable[GroupListing], groups: Iterable[str], unknown: str) -> dict[str, str]:
    """Return group -> why it cannot be deleted; `unknown` is the text for a group that is not listed."""
    there = {listing.id: listing.state for listing in listings}
    failed: dict[str, str] = {}
    for group in groups:
        if group not in there:
            failed[group] = f"java.lang.IllegalArgumentException: Group '{group}' {unknown}."
        elif there[group] == "Dead":
            failed[group] = f"java.lang.IllegalStateException: {kind} group '{group}' group state is DEAD."
        elif there[group] != "Empty":
            not_empty = java_class(KafkaError(ErrorCode.NON_EMPTY_GROUP))
            failed[group] = f"{not_empty}: {kind} group '{group}' is not EMPTY."
    return failed


def print_deletion(kind: str, groups: Iterable[str], failed: Mapping[str, str], end: str = "") -> None:
    """Print which groups are deleted, and why the others are not."""
    done = ", ".join(f"'{group}'" for group in groups if group not in failed)
    if not failed:
        print(f"Deletion of requested {kind} groups ({done}) was successful.")
        return
    print(f"\nError: Deletion of some {kind} groups failed:")
    for group, why in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {why}")
    if done:
        print(f"\nThese {kind} groups were deleted successfully: {done}{end}")
