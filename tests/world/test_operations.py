"""The operations that the clients of a world record have the shape that Jepsen's kafka checker needs."""

from __future__ import annotations

import re
from collections import defaultdict

from ottla.kernel.named import NamedTuple
from ottla.sim.history import OperationHistory
from tests.world.cluster import ClusterHistory

_LINE = re.compile(r"\{:index (\d+), :time (\d+), :type :(\w+), :process (\d+), :f :(\w+), :value (.*)\}")
_SENT = re.compile(r"\[:send \d+ (?:\[\d+ )?(\d+)\]")
_POLLED = re.compile(r"\[\d+ (\d+)\]")


class _Operation(NamedTuple):
    at: int
    time: int
    type: str
    process: int
    f: str
    value: str


def _operations(seed: int) -> list[_Operation]:
    history = ClusterHistory(seed, power=True)
    [ledger] = history.ledgers
    ledger.history = OperationHistory(lambda: history.world.now_us * 1000)
    history.run()
    found = []
    for line in ledger.history.text().splitlines():
        match = _LINE.fullmatch(line)
        assert match, line
        index, time, kind, process, what, value = match.groups()
        found.append(_Operation(int(index), int(time), kind, int(process), what, value))
    return found


def test_operations_of_a_world_are_a_history_of_jepsens_kafka_workload() -> None:
    operations = _operations(3)
    assert [each.at for each in operations] == list(range(len(operations)))
    assert [each.time for each in operations] == sorted(each.time for each in operations)
    processes: dict[int, list[_Operation]] = defaultdict(list)
    for each in operations:
        processes[each.process].append(each)
    for mine in processes.values():
        # Each invocation has its completion, and a process ends with the first that is not :ok.
        assert [each.type for each in mine[::2]] == ["invoke"] * (len(mine) // 2)
        assert all(each.type == "ok" for each in mine[1:-1:2])
        assert mine[-1].type in ("ok", "info")
        assert all(begun.f == done.f for begun, done in zip(mine[::2], mine[1::2], strict=True))
        # A consumer is one process from its subscription on.
        assert "poll" not in {each.f for each in mine} or mine[0].f == "subscribe"
    # A poll whose commit got no answer is of unknown outcome, and its records were read.
    assert any(each.type == "info" and each.f == "poll" and _POLLED.search(each.value) for each in operations)
    completed = [each for each in operations if each.type != "invoke"]
    sent = [value for each in completed if each.f == "send" for value in _SENT.findall(each.value)]
    assert len(sent) == len(set(sent)), "values are not unique"
    polled = {value for each in completed if each.f == "poll" for value in _POLLED.findall(each.value)}
    assert polled and polled <= set(sent)
