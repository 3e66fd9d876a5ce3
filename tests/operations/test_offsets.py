"""Places in partitions, against a cluster that is three tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.place import place
from ottla.client import OffsetSpec, TopicPartition
from ottla.kernel.error import OttlaError
from ottla.operations import offsets

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
STARTS, ENDS, AT_A_TIME = {A0: 10, A1: 0}, {A0: 100, A1: 50}, {A0: 40, A1: -1}


class _Cluster:
    def list_offsets(self, wanted: dict[TopicPartition, Any]) -> Any:
        def found(spec: Any) -> dict[TopicPartition, int]:
            return {OffsetSpec.EARLIEST: STARTS, OffsetSpec.LATEST: ENDS}.get(spec, AT_A_TIME)

        answers = {each: SimpleNamespace(offset=found(spec)[each]) for each, spec in wanted.items()}
        return SimpleNamespace(check=lambda: answers)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("latest", ENDS),
        ("earliest", STARTS),
        ("5", {A0: 10, A1: 5}),
        ("60", {A0: 60, A1: 50}),
        ("-95", {A0: 10, A1: 0}),
        ("@1795304325959", {A0: 40, A1: 50}),
        ("0:30", {A0: 30, A1: 0}),
        ("0:1000,1:7", {A0: 100, A1: 7}),
    ],
)
def test_a_place_is_found_within_what_each_partition_holds(text: str, wanted: dict[TopicPartition, int]) -> None:
    cluster: Any = _Cluster()
    assert offsets.offsets_at(cluster, [A0, A1], place(text)) == wanted


def test_an_offset_that_no_partition_reaches_is_refused() -> None:
    cluster: Any = _Cluster()
    with pytest.raises(offsets.BeyondTheEnd, match="every partition \\(the longest ends at 100\\)"):
        offsets.offsets_at(cluster, [A0, A1], 101)
    with pytest.raises(offsets.BeyondTheEnd, match="the partition \\(50\\)"):
        offsets.offsets_at(cluster, [A1], 51)


def test_a_partition_that_is_not_there_is_named() -> None:
    cluster: Any = _Cluster()
    with pytest.raises(OttlaError, match="0:1,7:2: there is no partition 7"):
        offsets.offsets_at(cluster, [A0, A1], place("0:1,7:2"))
