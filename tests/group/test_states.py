"""The tables of states of classic groups and of members of consumer and streams groups, against random members."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from ottla.group.consumer import reconciliation
from ottla.group.setting import CoordinatorSettings
from ottla.group.state import classic
from ottla.group.state.classic import ClassicGroup
from ottla.group.streams import reconciliation as streams_reconciliation
from ottla.kernel.error import ErrorCode
from tests.group.client import Classic, Consumer
from tests.group.host import Host, Topics
from tests.group.streams import QUICK, Streamer
from tests.machine import Transitions, table, watch

_WALKS = 80
_STEPS = 60


def _classic_step(random: Random, host: Host, members: list[Classic]) -> None:
    member = random.choice(members)
    calls: tuple[Callable[[], object], ...] = (
        member.join,
        partial(_take_join, member),
        partial(_leave, member),
        lambda: host.pass_ms(random.choice((100, 6_000, 40_000))),
        host.restart,
    )
    random.choice(calls)()


def _take_join(member: Classic) -> None:
    """Take the answer to JoinGroup in, if there is one, and send SyncGroup."""
    if hasattr(member.host.answers.get(member.ticket), "members") and member.joined().error_code == ErrorCode.NONE:
        member.sync()


def _leave(member: Classic) -> None:
    if member.member_id:
        member.leave()


def test_a_classic_group_takes_the_states_of_the_table_and_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, ClassicGroup, "state", lambda state: state.name)
    random = Random(1)
    for _ in range(_WALKS):
        host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=1_000))
        members = [Classic(host) for _ in range(3)]
        for _ in range(_STEPS):
            _classic_step(random, host, members)
    assert seen == table(classic)


def _member_states(host: Host) -> dict[str, str]:
    members = getattr(host.group(), "members", {})
    return {name: member.state.name for name, member in members.items()}


def _watched(host: Host, call: Callable[[], object]) -> Transitions:
    before = _member_states(host)
    call()
    after = _member_states(host)
    return {(before[name], state) for name, state in after.items() if before.get(name, state) != state}


def _subscribe(random: Random, member: Consumer) -> None:
    member.topics = random.choice((["orders"], ["clicks"], ["orders", "clicks"]))
    member.beat()


def test_a_consumer_takes_the_states_of_the_table_and_each_of_them() -> None:
    seen: Transitions = set()
    random = Random(1)
    for _ in range(_WALKS):
        host = Host()
        members = [Consumer(host, name) for name in "abc"]
        for _ in range(_STEPS):
            member = random.choice(members)
            calls: tuple[Callable[[], object], ...] = (
                member.join,
                member.beat,
                member.beat,
                partial(member.beat, full=False),
                member.leave,
                partial(_subscribe, random, member),
                partial(host.pass_ms, 10_000),
            )
            seen |= _watched(host, random.choice(calls))
    assert seen == table(reconciliation)


def test_a_streams_member_takes_the_states_of_the_table_and_each_of_them() -> None:
    seen: Transitions = set()
    random = Random(1)
    for _ in range(_WALKS):
        host = Host(QUICK, Topics({"orders": 6}))
        members = [Streamer(host, name) for name in "abcd"]
        for _ in range(_STEPS):
            member = random.choice(members)
            calls: tuple[Callable[[], object], ...] = (
                member.join,
                member.beat,
                member.beat,
                member.leave,
                partial(host.pass_ms, 10_000),
            )
            seen |= _watched(host, random.choice(calls))
    assert seen == table(streams_reconciliation)
