"""Random histories of a quorum hold what the quorum promises. More of them: `python -m tests.raft.random_history`."""

import pytest

from ottla.raft.role import Voter
from tests.raft.cluster import Broken, Cluster
from tests.raft.node_disk import directory_of
from tests.raft.random_history import failure, operations_of, shape_of, shortened


@pytest.mark.parametrize("seed", range(1, 31))
def test_a_random_history_breaks_no_promise(seed: int) -> None:
    assert failure(shape_of(seed), operations_of(seed, 600)) == ""


def test_one_seed_is_one_history() -> None:
    assert operations_of(7, 100) == operations_of(7, 100) != operations_of(8, 100)
    assert shape_of(7) == shape_of(7)


def test_the_judge_cries_when_an_epoch_is_led_twice() -> None:
    cluster = Cluster([1], [])
    node = cluster.nodes[1]
    node.start()
    with pytest.raises(Broken, match="epoch 1 is led by 1"):
        cluster.led(node)


def test_the_judge_cries_when_committed_prefixes_part() -> None:
    cluster = Cluster([1], [])
    node = cluster.nodes[1]
    node.start()
    cluster.history = [(9, "another")]
    with pytest.raises(Broken, match="and committed is"):
        node.sync()


def test_the_judge_cries_when_a_vote_is_given_twice() -> None:
    cluster = Cluster([1, 2, 3], [])
    one, two, three = (Voter(node_id, directory_of(node_id, 0)) for node_id in (1, 2, 3))
    cluster._vote(4, one, two)
    cluster._vote(4, one, two)
    with pytest.raises(Broken, match="votes in 4"):
        cluster._vote(4, one, three)


def test_a_failing_history_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    # A judge that takes no commit at all: a start and a sync are enough to fail before it.
    def refuse(cluster: Cluster, node: object, high_watermark: int) -> None:
        raise Broken("nothing may be committed")

    monkeypatch.setattr(Cluster, "commits", refuse)
    shape, operations = shape_of(3), operations_of(3, 60)
    assert failure(shape, operations) == "Broken: nothing may be committed"
    assert shortened(shape, operations) == []
