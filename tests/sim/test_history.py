"""Histories in the shape of Jepsen's kafka workload."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from ottla.sim.history import OperationHistory, PollOperation, SendOperation


def test_operations_are_written_in_their_order_with_what_they_were_told() -> None:
    history = OperationHistory(count(100).__next__)
    with history.operation("p0", sends := [SendOperation(2, b"a"), SendOperation(2, b"b")]):
        sends[:] = [SendOperation(2, b"a", 7), SendOperation(2, b"b", 8)]
    history.subscribed("c0", range(2))
    with history.operation("c0", polls := [PollOperation()]):
        polls[:] = [PollOperation(((2, 7, b"a"), (0, 0, b"c"), (2, 8, b"b")))]
    history.fault("kill9", "node 1")
    history.read_to_the_end("last", {2: [(7, b"a"), (8, b"b")]})
    assert history.text().splitlines() == [
        "{:index 0, :time 1, :type :invoke, :process 0, :f :send, :value [[:send 2 0] [:send 2 1]]}",
        "{:index 1, :time 2, :type :ok, :process 0, :f :send, :value [[:send 2 [7 0]] [:send 2 [8 1]]]}",
        "{:index 2, :time 3, :type :invoke, :process 1, :f :subscribe, :value [0 1]}",
        "{:index 3, :time 4, :type :ok, :process 1, :f :subscribe, :value [0 1]}",
        "{:index 4, :time 5, :type :invoke, :process 1, :f :poll, :value [[:poll]]}",
        "{:index 5, :time 6, :type :ok, :process 1, :f :poll, :value [[:poll {2 [[7 0] [8 1]] 0 [[0 2]]}]]}",
        '{:index 6, :time 7, :type :info, :process :nemesis, :f :kill9, :value "node 1"}',
        "{:index 7, :time 8, :type :invoke, :process 2, :f :assign, :value [2], :seek-to-beginning? true}",
        "{:index 8, :time 9, :type :ok, :process 2, :f :assign, :value [2], :seek-to-beginning? true}",
        "{:index 9, :time 10, :type :invoke, :process 2, :f :poll, :value [[:poll]]}",
        "{:index 10, :time 11, :type :ok, :process 2, :f :poll, :value [[:poll {2 [[7 0] [8 1]]}]]}",
    ]


def _lost(history: OperationHistory, client: str, asked: list[Any], known: list[Any]) -> None:
    """An operation of unknown outcome, with what is known of it."""
    with history.operation(client, asked):
        asked[:] = known
        raise OSError("no answer")


def test_an_operation_without_a_known_outcome_says_what_is_known() -> None:
    history = OperationHistory(count().__next__)
    sends = [SendOperation(0, b"a"), SendOperation(0, b"b")]
    with pytest.raises(OSError):
        _lost(history, "p0", sends, [SendOperation(0, b"a", 4), SendOperation(0, b"b")])
    with pytest.raises(OSError):
        _lost(history, "c0", [PollOperation()], [PollOperation(((0, 4, b"a"),))])
    assert [line.split(", :f ")[1] for line in history.text().splitlines()] == [
        ":send, :value [[:send 0 0] [:send 0 1]]}",
        ":send, :value [[:send 0 [4 0]] [:send 0 1]]}",
        ":poll, :value [[:poll]]}",
        ":poll, :value [[:poll {0 [[4 0]]}]]}",
    ]


def test_a_client_that_is_replaced_crashes_once() -> None:
    history = OperationHistory(count().__next__)
    history.crash("c0")
    history.subscribed("c0", [0])
    history.crash("c0")
    with pytest.raises(OSError), history.operation("c0", [PollOperation()]):
        raise OSError("gone")
    history.crash("c0")
    history.subscribed("c0", [0])
    assert [line.split(", :type ")[1] for line in history.text().splitlines()] == [
        ":invoke, :process 0, :f :subscribe, :value [0]}",
        ":ok, :process 0, :f :subscribe, :value [0]}",
        ":invoke, :process 0, :f :crash, :value nil}",
        ":info, :process 0, :f :crash, :value nil}",
        ":invoke, :process 1, :f :poll, :value [[:poll]]}",
        ":info, :process 1, :f :poll, :value [[:poll]]}",
        ":invoke, :process 2, :f :subscribe, :value [0]}",
        ":ok, :process 2, :f :subscribe, :value [0]}",
    ]


def test_a_client_whose_operation_has_no_known_outcome_goes_on_as_another_process() -> None:
    history = OperationHistory(count().__next__)
    with pytest.raises(OSError), history.operation("p0", [SendOperation(0, b"a")]):
        raise OSError("gone")
    with history.operation("p0", [SendOperation(0, b"b")]):
        pass
    assert [line.split(":type ")[1].split(", :f")[0] for line in history.text().splitlines()] == [
        ":invoke, :process 0",
        ":info, :process 0",
        ":invoke, :process 1",
        ":ok, :process 1",
    ]
