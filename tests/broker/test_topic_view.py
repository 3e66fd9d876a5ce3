"""What of the topics changed from one image to the next, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.metadata.topic_view import topics_changed
from ottla.kernel.ids import Uuid
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.wire.record.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord

_ID = Uuid(bytes(15) + b"\1")


def _next(image: Image, *records: Any) -> Image:
    delta = Delta(image)
    for each in records:
        delta.replay(each)
    return delta.image(image.offset + 1, 1, 0)


def _partition(index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=_ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0
    )


_FIRST = _next(Image.empty(), TopicRecord(name="t", topic_id=_ID), _partition(0), _partition(1))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (PartitionChangeRecord(topic_id=_ID, partition_id=1, isr=[1]), "adjusted"),
        (PartitionChangeRecord(topic_id=_ID, partition_id=1, leader=2), "adjusted"),
        (PartitionChangeRecord(topic_id=_ID, partition_id=1, replicas=[1, 3]), "changed"),
        (_partition(2), "changed"),
    ],
)
def test_what_coordinators_must_know_and_what_only_replicas_must(change: Any, kind: str) -> None:
    step = topics_changed(_FIRST, _next(_FIRST, change))
    assert step._asdict() == {"created": [], "changed": [], "deleted": [], "adjusted": []} | {kind: ["t"]}


def test_a_topic_that_is_made_or_gone() -> None:
    assert topics_changed(Image.empty(), _FIRST).created == ["t"]
    assert topics_changed(_FIRST, Image.empty()).deleted == [("t", _ID)]
