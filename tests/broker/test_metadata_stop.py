"""What a clean stop of the active controller says of its own broker."""

from __future__ import annotations

from random import Random

import pytest

from ottla.sim.disk import SimDisk
from ottla.wire.batch import read
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord, parse
from tests.broker.test_metadata_log import whole
from tests.controller.place import Place, create


@pytest.mark.parametrize("others", [False, True])
def test_a_clean_stop_fences_the_only_broker_and_none_among_others(*, others: bool) -> None:
    """Whoever leads is not fenced: another may come back and would never be elected."""
    place = Place(SimDisk(Random(1)))
    place.format()
    with place.node() as log:
        create(log, "a")
        if others:
            log.append([RegisterBrokerRecord(broker_id=2, broker_epoch=log.log.end_offset, fenced=True)])
    records = [
        parse(record.value or b"")[0]
        for batch in read(whole(place, "00000000000000000000.log"))
        if not batch.header.is_control
        for record in batch.records()
    ]
    fenced = [each for each in records if isinstance(each, BrokerRegistrationChangeRecord) and each.fenced == 1]
    assert [each.broker_id for each in fenced] == ([] if others else [1])
