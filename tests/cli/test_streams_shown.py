"""What `ottla streams` shows of applications, and what its reset does first: the cluster is a table of answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.streams import command, view
from ottla.cli.streams.view import StreamsSample
from ottla.client import CommittedOffset, ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.result import Results
from ottla.kernel.error import OttlaError
from ottla.spark.streams.last_run import Alive, LastRun
from tests.cli.test_terminal_tables import asked as asked
from tests.cli.test_terminal_tables import cells
from tests.cli.tool import Said

AT_MS = 1_000_000_000_000
IN0, IN1 = TopicPartition("in", 0), TopicPartition("in", 1)
STORES = {"counts": {"kind": "timestamped_key_value", "key": "string", "value": "long", "window_ms": 0, "stage": 0}}
TASKS = [{"id": f"0_{number}", "sources": [["in", number]], "stores": ["counts"][number:]} for number in range(2)]


def last_run(guarantee: str = "exactly_once_v2", **more: Any) -> LastRun:
    given: dict[str, Any] = {"tasks": TASKS, "stores": STORES, **more}
    return LastRun("app", AT_MS, "Topologies:\n", guarantee, given["tasks"], given["stores"], [])


def alive(state: str = "RUNNING", ago_s: float = 0) -> Alive:
    return Alive("h", 7, time.time_ns() // 1_000_000 - int(ago_s * 1000), state, 2)


@pytest.fixture
def shown(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Alive | None, LastRun], Callable[..., Said]]:
    """Runs `ottla streams` about this run, whose tasks have read 100 of 100 and 60 of 1,300 records."""

    def of(running: Alive | None, run: LastRun) -> Callable[..., Said]:
        monkeypatch.setattr(view, "last_run_of", lambda *_: (run, running))
        monkeypatch.setattr(view, "application_ids", lambda _: ["app"])
        sample = StreamsSample(1.0, {IN0: CommittedOffset(100), IN1: CommittedOffset(60)}, {IN0: 100, IN1: 1300})
        monkeypatch.setattr(view, "take_sample", lambda *_: sample)
        return lambda *words, **more: asked(command, Mock(), "streams", *words, **more)

    return of


@pytest.mark.parametrize(
    ("reported", "ago_s", "state"),
    [
        (None, 0, "NOT_RUNNING"),
        ("ERROR", 0, "ERROR"),
        ("NOT_RUNNING", 0, "NOT_RUNNING"),
        ("RUNNING", 0, "RUNNING"),
        ("RUNNING", 86_400, "LOST"),
    ],
)
def test_applications_are_listed_by_their_state(shown: Any, reported: str | None, ago_s: float, state: str) -> None:
    said = shown(None if reported is None else alive(reported, ago_s), last_run())
    for words in ((), ("list",)):
        assert cells(said(*words).out) == [
            ["application", "state", "tasks", "stores", "lag", "started", "guarantee"],
            ["app", state, "2", "1", "1,240", "2001-09-09T01:46:40.000Z", "exactly_once_v2"],
        ]
    (row,) = said("--json", pipe=True).json
    assert (row["state"], row["lag"], row["tasks"], row["stores"]) == (state, 1240, 2, 1)


def test_an_application_is_described_with_its_tasks_and_stores(shown: Any) -> None:
    said = shown(alive(), last_run())
    lines = said("describe", "app").out.splitlines()
    about = "RUNNING on h (pid 7, 2 workers), exactly_once_v2, 2 tasks, lag 1,240, started 2001-09-09T01:46:40.000Z"
    assert lines[0] == f"<bold>app</>  <dim>{about}</>"
    assert lines[1] == "Topologies:"
    assert cells("\n".join(lines[2:])) == [
        ["task", "reads", "lag", "records/s", "stream time", "stores"],
        ["0_0", "in-0", "0", "-", "-", "counts"],
        ["0_1", "in-1", "1,240", "-", "-", "-"],
        ["store", "kind", "key", "value", "tasks", "changelog"],
        ["counts", "timestamped_key_value", "string", "long", "1", "app-counts-changelog"],
    ]
    lines = shown(None, last_run(stores={}))("describe", "app").out.splitlines()
    assert lines[0].startswith("<bold>app</>  <dim>NOT_RUNNING, exactly_once_v2, 2 tasks, lag 1,240, ")
    assert "store " not in lines[-3]
    piped = shown(None, last_run())("describe", "app", pipe=True)
    assert piped.rows == [["0_0", "in-0", "0", "", "", "counts"], ["0_1", "in-1", "1240", "", "", ""]]
    document = shown(alive(), last_run())("describe", "app", "--json", pipe=True).json
    assert (document["state"], document["lag"], document["runs_on"]["pid"]) == ("RUNNING", 1240, 7)
    assert shown(None, last_run())("describe", "app", "--json", pipe=True).json["runs_on"] is None
    said = shown(None, last_run())("describe", "app", "--explain", pipe=True)
    why = "--explain needs the file of a program: the cluster stores only its topology"
    assert (said.code, said.err.splitlines()[0]) == (2, f"ottla: {why}")


class Reset:
    """What a reset asks of the cluster of `app`, in which topic `in` has two partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asked: Callable[..., Said]) -> None:
        self.client, self._asked, self._patch = Mock(), asked, monkeypatch
        self.end = Mock(return_value=True)
        names = ("in", "app-counts-changelog", "other")
        self.client.list_topics.return_value = [SimpleNamespace(name=name) for name in names]
        parts = [SimpleNamespace(partition=number) for number in (0, 1)]
        self.client.describe_topics.return_value = Results({"in": SimpleNamespace(partitions=parts)}, {})
        self.client.list_group_offsets.return_value = {IN0: CommittedOffset(7)}
        self.client.describe_group.return_value = SimpleNamespace(members=[], state="Empty")
        self.client.list_groups.return_value = []
        monkeypatch.setattr("ottla.spark.streams.last_run.end", self.end)
        monkeypatch.setattr(command, "offsets_at", lambda _, places, __: dict.fromkeys(places, 3), raising=False)
        monkeypatch.setattr("ottla.cli.place.offsets_at", lambda _, places, __: dict.fromkeys(places, 3))

    def __call__(self, running: Alive | None, run: LastRun, *words: str, **more: Any) -> Said:
        self._patch.setattr(view, "last_run_of", lambda *_: (run, running))
        self.client.reset_mock()
        return self._asked(command, self.client, "streams", "reset", "app", *words, **more)


@pytest.fixture
def reset(monkeypatch: pytest.MonkeyPatch, asked: Callable[..., Said]) -> Reset:
    return Reset(monkeypatch, asked)


def test_a_reset_moves_the_group_and_deletes_what_the_application_made(reset: Reset) -> None:
    said = reset(None, last_run(), "-y")
    assert said.code == 0, said.err
    assert cells(said.out) == [
        ["topic", "partition", "before", "after"],
        ["in", "0", "7", "3"],
        ["in", "1", "-", "3"],
    ]
    tick = "<green>\N{CHECK MARK}</>"
    starts = f"{tick} app starts from these offsets at its next start"
    assert said.err.splitlines() == [f"{tick} app-counts-changelog deleted", starts]
    assert reset.client.alter_group_offsets.call_args == call("app", {IN0: 3, IN1: 3})
    assert reset.client.delete_topics.call_args == call(["app-counts-changelog"])
    assert reset.client.fence_producers.called
    assert not reset.client.remove_group_members.called
    assert not reset(None, last_run("at_least_once"), "-y").code
    assert not reset.client.fence_producers.called


def test_a_rehearsed_reset_changes_nothing(reset: Reset) -> None:
    said = reset(alive(), last_run(), "-n")
    assert said.code == 0, said.err
    assert said.err.splitlines() == [
        "<dim>app-counts-changelog would be deleted</>",
        "<dim>nothing was changed (--dry-run)</>",
    ]
    for name in ("alter_group_offsets", "delete_topics", "fence_producers", "remove_group_members"):
        assert not getattr(reset.client, name).called
    assert not reset.end.called
    rows = reset(None, last_run(), "-n", "--json", pipe=True).json
    assert rows["offsets"][1] == {"topic": "in", "partition": 1, "before": None, "after": 3}
    assert (rows["deleted_topics"], rows["dry_run"]) == (["app-counts-changelog"], True)


def test_an_application_that_runs_is_reset_by_force_only(reset: Reset) -> None:
    said = reset(alive(), last_run(), "-y")
    why = "app is running on h (pid 7): stop it first, or use --force; -n shows what a reset would change"
    assert (said.code, why in said.err.replace("</>", "")) == (1, True)
    assert not reset.client.delete_topics.called
    reset.client.describe_group.return_value = SimpleNamespace(members=["m"], state="Stable")
    said = reset(alive(), last_run(), "--force", "-y")
    assert said.code == 0, said.err
    assert reset.client.remove_group_members.call_args == call("app")
    assert "does not answer" not in said.err
    reset.end.return_value = False
    said = reset(alive(), last_run(), "--force", "-y")
    told = "app on h (pid 7) does not answer: stop that process; its workers end when they notice the reset"
    assert told in " ".join(said.err.split())
    assert "does not answer" not in reset(None, last_run(), "--force", "-y").err
    for code, ends in ((ErrorCode.GROUP_ID_NOT_FOUND, 0), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 1)):
        reset.client.describe_group.side_effect = KafkaError(code)
        assert reset(None, last_run(), "--force", "-y").code == ends
        assert reset.client.delete_topics.called is (ends == 0)


def test_an_application_that_has_not_run_gets_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.streams.last_run.read", lambda *_: (None, None))
    ask: Any = Mock()
    for there, hint in (
        (["apple"], "; did you mean apple?"),
        (["zzz"], "; `ottla streams` lists those that have run"),
        ([], ""),
    ):
        monkeypatch.setattr(view, "application_ids", lambda _, there=there: there)
        with pytest.raises(OttlaError) as raised:
            view.last_run_of(ask, {}, "appl")
        assert str(raised.value) == f"no application appl has run on this cluster{hint}"
