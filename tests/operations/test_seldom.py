"""Cases that operations meet seldom: what is not there, not allowed, or gone in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from ottla.client import ErrorCode, KafkaError, TopicPartition
from ottla.kernel.client_error import Unsupported
from ottla.kernel.error import OttlaError
from ottla.operations.bundle import process
from ottla.operations.bundle.archive import Absent, Bundle, _absent
from ottla.operations.bundle.mask import Mask
from ottla.operations.drain import plan_drain
from ottla.operations.offsets import bounds_of_led
from ottla.operations.topics.copy import prepare_target
from ottla.operations.widen import plan_widening

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class TestProcess:
    """The process of a node, in /proc."""

    def test_a_process_without_a_file_for_stacks_gets_no_signal(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """SIGUSR2 would end it."""
        monkeypatch.setattr(process, "_PROC", tmp_path)
        monkeypatch.setattr(os, "kill", Mock(side_effect=AssertionError))
        (tmp_path / "7" / "fd").mkdir(parents=True)
        (tmp_path / "7" / "fd" / "3").symlink_to("/memfd:another (deleted)")
        with pytest.raises(OttlaError, match=r"^process 7 has no memory file for its stacks: "):
            process.stacks(7)

    def test_stacks_that_do_not_come_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_STACKS_SECONDS", 0.1)
        signals: list[tuple[int, int]] = []
        monkeypatch.setattr(os, "kill", lambda *signal: signals.append(signal))
        file, pid = os.memfd_create("ottla-stacks"), os.getpid()
        try:
            with pytest.raises(OttlaError, match=rf"^process {pid} did not write its stacks within 0 s$"):
                process.stacks(pid)
        finally:
            os.close(file)
        assert signals == [(pid, signal.SIGUSR2)]

    def test_the_log_of_a_process_is_its_stderr_unless_it_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(process, "_PROC", tmp_path)
        assert process._files(7, ["a.properties"]) == (None, None)  # it has ended
        (tmp_path / "7" / "fd").mkdir(parents=True)
        (tmp_path / "err").touch()
        (tmp_path / "7" / "fd" / "2").symlink_to(tmp_path / "err")
        (tmp_path / "7" / "cwd").symlink_to("/srv/node")
        assert process._files(7, ["start", "a.properties"]) == ("/srv/node/a.properties", str(tmp_path / "err"))
        for words in (["--log-file", "b.log"], ["--log-file=b.log"]):
            assert process._files(7, ["start", *words]) == (None, "/srv/node/b.log")


def test_what_a_cluster_cannot_answer_is_no_failure_of_the_bundle() -> None:
    absent = _absent(Unsupported("too old"))
    assert isinstance(absent, Absent) and str(absent) == "UNSUPPORTED_VERSION: too old"
    assert _absent(absent) is absent
    assert _absent(OttlaError("broken")) is None


def test_a_bundle_that_is_given_up_on_a_full_disk_ends_with_what_ended_it(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "b.tar.gz", Mask(), bytes_max=1 << 20, seconds=60)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, bundle._file.fileno())
    os.close(full)
    bundle.text("versions.txt", "versions", lambda: "what waits to be written")
    error = KeyboardInterrupt()
    bundle.__exit__(KeyboardInterrupt, error, None)
    assert bundle._file.closed
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_holds_what_no_other_can_take_is_not_emptied() -> None:
    why = "^t-1 has 2 replicas, but without node 1 there are 1 nodes: add a node first"
    with pytest.raises(OttlaError, match=why):
        plan_drain({T0: [2], T1: [1, 2]}, {1: None, 2: None}, 1)


def test_replicas_go_where_the_rack_is_new_and_the_load_is_least() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert plan_drain({T0: [1, 3], T1: [3, 1]}, racks, 1) == {T0: [2, 3], T1: [3, 2]}
    assert plan_widening({T0: [1], T1: [2]}, racks, 2) == {T0: [1, 3], T1: [2, 4]}
    assert plan_widening({T0: [1, 2], T1: [2]}, racks, 2) == {T1: [2, 3]}
    assert plan_widening({T0: [1]}, {1: None, 2: None}, 3) == {T0: [1, 2]}
    assert plan_widening({T0: [1], T1: [2]}, dict.fromkeys((1, 2, 3)), 2) == {T0: [1, 3], T1: [2, 1]}


def test_partitions_that_none_leads_have_no_bounds_and_none_is_asked() -> None:
    ask = Mock()
    assert bounds_of_led(ask, []) == {}
    ask.list_offsets.assert_not_called()


def test_a_copy_that_may_not_see_its_target_ends_with_that_error() -> None:
    ask = Mock()
    ask.describe_topic.side_effect = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        prepare_target(ask, "t", 3, {})
    ask.create_topics.assert_not_called()
