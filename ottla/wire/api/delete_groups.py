"""DeleteGroups (key 42): delete groups with all their offsets (KIP-229). Version 3 (4.4): a message with each error."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire(versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[String] = on("0+", factory=list)


@wire
class DeletableGroupResult:
    group_id: String = on("0+", default="")
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("3+", default=None, ignorable=True)


@wire(versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[DeletableGroupResult] = on("0+", factory=list)
