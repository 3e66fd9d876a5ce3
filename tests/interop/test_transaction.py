"""Transactions: what is committed is seen, what is aborted never, and what is open not yet; also through restarts."""

from collections.abc import Mapping

import pytest

from tests.interop.peer import Peer, Process, Record
from tests.interop.scene import each_peer, plain
from tests.interop.server import Server

transactional = each_peer(lambda kind: kind.transactions)


class Transaction:
    """One transaction of a peer, open: all is written but its end."""

    def __init__(
        self, peer: Peer, topic: str, records: list[Record], *, commit: bool, offsets: Mapping[int, int] | None = None
    ) -> None:
        self.peer = peer
        named = {str(partition): offset for partition, offset in (offsets or {}).items()}
        lines = [record.to_json() for record in records]
        self.process: Process = peer.begin(
            "transact", topic=topic, id=f"{topic}-id", records=lines, group=topic, offsets=named, commit=commit
        )
        self.answers = self.process.answers(peer.timeout_s)
        assert next(self.answers) == {"open": True}

    def end(self) -> None:
        self.process.tell(op="leave")
        assert list(self.answers) == []


def values(records: Mapping[tuple[int, int], Record]) -> list[bytes | None]:
    return [record.value for _, record in sorted(records.items())]


def sent(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in sorted(records, key=lambda record: record.partition)]


@transactional
def test_readers_of_committed_records_see_what_was_committed_only(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    first, lost, last = (plain(20, partitions=2, start=start) for start in (0, 20, 40))
    Transaction(peer, name, first, commit=True).end()
    Transaction(peer, name, lost, commit=False).end()
    Transaction(peer, name, last, commit=True).end()
    committed = peer.consume(name, [0, 1], 40, isolation="read_committed")
    assert values(committed) == sent(first + last)
    assert values(helper.consume(name, [0, 1], 60)) == sent(first + lost + last)


@transactional
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_of_a_transaction_count_when_it_commits(peer: Peer, commit: bool, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    Transaction(peer, name, plain(4, partitions=2), commit=True, offsets={0: 1, 1: 1}).end()
    Transaction(peer, name, plain(4, partitions=2, start=4), commit=commit, offsets={0: 3, 1: 4}).end()
    expected = {"0": 3, "1": 4} if commit else {"0": 1, "1": 1}
    assert helper.ask("committed", group=name, topic=name) == {"offsets": expected}


@transactional
def test_an_open_transaction_goes_on_through_a_restart(peer: Peer, server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    records = plain(10)
    transaction = Transaction(peer, name, records, commit=True, offsets={0: 10})
    server.restart()
    transaction.end()
    helper.await_partition(name, 0)
    assert values(helper.consume(name, [0], 10, isolation="read_committed")) == sent(records)
    assert helper.ask("committed", group=name, topic=name) == {"offsets": {"0": 10}}


@transactional
def test_the_next_producer_of_the_id_aborts_what_a_dead_one_left_open(
    peer: Peer, server: Server, helper: Peer, name: str
) -> None:
    helper.create(name, 1)
    left = Transaction(peer, name, plain(5), commit=True)
    left.process.kill()
    server.kill()
    server.start()
    records = plain(5, start=5)
    Transaction(peer, name, records, commit=True).end()
    assert values(helper.consume(name, [0], 5, isolation="read_committed")) == sent(records)
