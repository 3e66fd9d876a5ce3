"""Where a source partition begins, in both modes: the rules of offset_reset."""

import logging

import pytest

import ottla
from ottla.client import Admin, CommittedOffset, Producer, TopicPartition
from ottla.flow.error import TopologyError
from ottla.spark.streams.start_offset import initial_offsets

PLACE = TopicPartition("in", 0)
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def test_offset_reset_decides_where_no_committed_offset_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The log has offsets 2 to 6: two records, one of an hour ago, a new one, and those of an open transaction."""
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("in")
        with Producer(node.bootstrap_servers) as producer:
            for age in (9, 9, 9, 3, 1, 0):
                producer.send("in", b"v", b"k", timestamp=NOW_MS - age * HOUR_MS).result(30)
        admin.delete_records({PLACE: 2}).check()
        with Producer(node.bootstrap_servers, transactional_id="open") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("in", b"v", b"k").result(30)

            def starts(reset: str, committed: CommittedOffset | None = None) -> int | None:
                at = {} if committed is None else {PLACE: committed}
                return initial_offsets(admin, {PLACE: reset}, at, NOW_MS).get(PLACE)

            resets = {"earliest": 2, "latest": 6, "by_duration:PT2H": 4, "by_duration:PT5H": 3}
            assert {reset: starts(reset) for reset in resets} == resets
            for inside in (2, 6, 7):  # 7: the end, after a record that is not committed yet
                assert starts("none", CommittedOffset(inside)) is None
            with caplog.at_level(logging.WARNING):
                assert starts("latest", CommittedOffset(1)) == 6
                assert starts("earliest", CommittedOffset(8)) == 2
            # The consumer compares the epochs.
            assert starts("earliest", CommittedOffset(8, leader_epoch=0)) is None
            with pytest.raises(TopologyError, match="in-0: no offset is committed, and offset_reset is none"):
                starts("none")
            with pytest.raises(TopologyError, match=r"in-0: the committed offset 8 is beyond the end, 7: .* is none"):
                starts("none", CommittedOffset(8))
            producer.abort_transaction()
    assert [message.removesuffix("; offset_reset applies") for message in caplog.messages] == [
        "in-0: records from offset 1 to 1 were deleted before they were processed",
        "in-0: the committed offset 8 is beyond the end, 7: the topic lost records or is another one",
    ]
