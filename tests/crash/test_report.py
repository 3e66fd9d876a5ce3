"""What a long run of kills counts, and how it goes on where another ended."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import evidence
from tests.crash.check import Tally
from tests.crash.member import GroupMember
from tests.crash.report import Report, Start
from tests.crash.round import Run


def _report() -> Report:
    return Report(
        kills=250,
        replaced=1,
        tally=Tally(acknowledged=1000, commits=7),
        killed=[Start(900.0, 300.0)],
        forked=[Start(100.0, 80.0), Start(2500.0, 90.0)],
        seconds={"start": 60.0},
    )


def _results(directory: Path, seed: int) -> Namespace:
    line = {"seed": seed, "round": 0, "report": _report().as_dict()}
    (directory / "results").write_text(json.dumps(line) + "\n")
    return Namespace(results=str(directory / "results"), resume=True, seed=5, kills=250, round=250, jobs=1)


def test_a_report_is_the_same_after_json_and_adds_up() -> None:
    report = Report.of(json.loads(json.dumps(_report().as_dict())))
    assert report == _report()
    report.add(_report())
    assert (report.kills, report.replaced, report.tally.acknowledged, report.tally.commits) == (500, 2, 2000, 14)
    assert [each.wall_ms for each in report.forked] == [100.0, 2500.0] * 2
    assert report.seconds == {"start": 120.0}
    assert "50.0% under 2 s" in report.lines()[5]


def test_a_run_goes_on_behind_the_rounds_of_its_results(tmp_path: Path) -> None:
    run = Run(_results(tmp_path, seed=5))
    run.run()
    assert run.total == _report()
    assert len((tmp_path / "results").read_text().splitlines()) == 1


def test_the_results_of_another_seed_are_not_added(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is of seed 6"):
        Run(_results(tmp_path, seed=6))


@pytest.fixture
def member() -> Iterator[GroupMember]:
    member = GroupMember("127.0.0.1:1", "t", "g", "classic")
    yield member
    member.last_turn()


def test_a_member_is_lost_when_it_says_itself_that_it_has_long_had_no_connection(member: GroupMember) -> None:
    down, up = ({"brokers": {"a": {"state": state}}} for state in ("TRY_CONNECT", "UP"))
    member.take_statistics(json.dumps(down), now=100.0)
    member.take_statistics(json.dumps(up), now=101.0)
    member.take_statistics(json.dumps(down), now=125.0)
    assert not member.lost(125.0)
    member.take_statistics(json.dumps(down), now=140.0)
    assert member.lost(140.0)
    # It has said nothing since: perhaps it is stuck in a call that the node does not answer.
    assert not member.lost(160.0)


def test_what_a_member_was_promised_goes_on_in_the_one_in_its_place(member: GroupMember) -> None:
    member.read, member.committed, member.answers = {0: [(0, b"a")]}, {0: 1}, 3
    fresh = member.successor()
    assert (fresh.read, fresh.committed, fresh.answers) == (member.read, member.committed, 3)
    member.read[0].append((1, b"b"))
    member.committed[0] = 2
    assert (fresh.read, fresh.committed) == ({0: [(0, b"a")]}, {0: 1})
    fresh.last_turn()


def test_counts_are_added_up_for_each_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "evidence.json"
    for commit, kills in (("one", 2), ("one", 3), ("two", 4)):
        monkeypatch.setattr(evidence, "commit", lambda commit=commit: commit)
        evidence.note("make crash", Report(kills=kills).counts(), file)
    known = json.loads(file.read_text())
    assert {commit: each["make crash"]["kills"] for commit, each in known.items()} == {"one": 5, "two": 4}
    assert known["two"]["make crash"]["acknowledged"] == 0


def test_a_commit_has_a_name() -> None:
    assert evidence.commit().rstrip("+").isalnum()
