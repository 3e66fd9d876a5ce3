"""A program that runs is left alone by a reset, and ended by one with force; an older run ends when a newer starts."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.client import Admin
from ottla.streams import StreamsError
from tests.cli.tool import in_process
from tests.spark.test_streams import LINES, WAIT_S, by_key, create, expected, names, read, send, word_count
from tests.spark.test_streams_kills import Killed, children, kill

__all__ = ["names"]
pytestmark = pytest.mark.timeout(300)
GUARANTEES = ("exactly_once_v2", "at_least_once")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_reset_with_force_ends_a_program_that_runs(
    spark: SparkSession, bootstrap_servers: str, names: tuple[str, str, str], guarantee: str
) -> None:
    lines, counts, application_id = names
    create(bootstrap_servers, lines, counts, partitions=2)
    send(bootstrap_servers, lines)
    config = {"processing.guarantee": guarantee}
    wanted = expected(word_count(*names), lines, counts)
    app = word_count(*names, **config)
    app.on_error(lambda error: pytest.fail("a reset is no error that a handler may mend"))
    app.start(bootstrap_servers, spark=spark)
    try:
        read(bootstrap_servers, counts, len(wanted))
        reset = ("streams", "reset", application_id, "-y", "-b", bootstrap_servers)
        left_alone = in_process(*reset)
        assert left_alone.code == 1
        assert f"{application_id} is running on " in left_alone.err and "use --force" in left_alone.err
        assert app.state.value == "RUNNING"
        ended = in_process(*reset, "--force")
        assert (ended.code, "did not answer" in ended.err) == (0, False), ended.err
        with pytest.raises(StreamsError, match=f"application {application_id} was reset while it ran: start it again"):
            app.await_termination(WAIT_S)
    finally:
        app.stop()
    with Admin(bootstrap_servers) as admin:
        assert [each.name for each in admin.list_topics() if each.name.startswith(f"{application_id}-")] == []
    # It begins again with nothing: the same counts once more.
    again = word_count(*names, **config)
    again.start(bootstrap_servers, spark=spark)
    try:
        found = read(bootstrap_servers, counts, 2 * len(wanted))
    finally:
        again.stop()
    twice = {word: counted * 2 for word, counted in by_key(wanted).items()}
    assert by_key(found) == twice
    assert sum(map(len, twice.values())) > len(LINES)


@pytest.mark.long
def test_a_zombie_ends_when_it_wakes_up(bootstrap_servers: str, topics: Iterator[int], tmp_path: Path) -> None:
    """Its host stands still, another start takes over, and it wakes up: each result comes once."""
    program = Killed(bootstrap_servers, f"{next(topics)}-{os.getpid()}", tmp_path)
    zombie = program.process
    try:
        program.send(1_000)
        program.wait(500)
        asleep = [zombie.pid, *children(zombie.pid)]
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        program.send(1_000)
        program.start()
        program.wait(2_000)
        for pid in asleep:
            os.kill(pid, signal.SIGCONT)
        program.send(1_000)
        assert zombie.wait(WAIT_S) != 0
        seen = program.wait(3_000)
        assert {word: len(found) for word, found in seen.items()} == {
            f"word-{number}": len(range(number, 3_000, 7)) for number in range(7)
        }
        assert all(found == list(range(1, len(found) + 1)) for found in seen.values())
    finally:
        for process in (zombie, program.process):
            kill(process.pid, *children(process.pid))
            process.wait()
