"""The table of a quorum node's roles, against random histories."""

import re

import pytest

from ottla.raft import role
from ottla.raft.member import QuorumMember
from tests.machine import table, watch
from tests.raft.random_history import failure, operations_of, shape_of

#: Histories are played until every transition was seen: 48 of them, today.
_SEEDS = range(1, 301)


def _named(value: role.QuorumRole) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(value).__name__).upper()


def test_a_node_takes_the_roles_of_the_table_and_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, QuorumMember, "role", _named)
    rows = table(role)
    for seed in _SEEDS:
        assert failure(shape_of(seed), operations_of(seed, 300)) == ""
        if seen >= rows:
            break
    assert seen == rows
