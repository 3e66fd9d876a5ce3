"""The table of the seeds that ran, which a long proof goes on from."""

import json
from pathlib import Path

from tests.world.ran import Note, keep, note, ran, ran_at, seeds_of, spans


def test_neighbours_are_joined() -> None:
    assert spans({3, 1, 2, 7}) == ["1-3", "7"]
    assert spans(set()) == []
    assert seeds_of(["1-3", "7"]) == {1, 2, 3, 7}


def test_seeds_are_noted_for_their_commit_and_profile(tmp_path: Path) -> None:
    for profile, commit, seed in (("ten-minutes", "aaa", 1), ("ten-minutes", "bbb", 2), ("ten", "aaa", 3)):
        note(profile, commit, Note(seed, "trace", 10, 5, 600), tmp_path)
    assert ran_at("ten-minutes", "aaa", tmp_path) == {1}
    assert ran_at("ten-minutes", "ccc", tmp_path) == set()
    assert ran("ten-minutes", tmp_path, tmp_path / "none.json") == {1, 2}
    assert ran("ten", tmp_path, tmp_path / "none.json") == {3}


def test_the_table_keeps_each_seed_once(tmp_path: Path) -> None:
    notes, table = tmp_path / "notes", tmp_path / "ran.json"
    for commit, seed in (("aaa", 1), ("aaa", 2), ("bbb", 2), ("bbb", 9)):
        note("ten-minutes", commit, Note(seed, "trace", 10, 5, 600), notes)
    for _ in range(2):
        keep(notes, table)
    assert json.loads(table.read_text()) == {
        "ten-minutes": {
            "aaa": {"seeds": ["1-2"], "acknowledged": 20, "faults": 10, "simulated_s": 1200},
            "bbb": {"seeds": ["9"], "acknowledged": 10, "faults": 5, "simulated_s": 600},
        }
    }
    assert ran("ten-minutes", tmp_path / "elsewhere", table) == {1, 2, 9}


def test_a_line_that_was_cut_does_not_count(tmp_path: Path) -> None:
    note("ten-minutes", "aaa", Note(1, "trace", 10, 5, 600), tmp_path)
    with (tmp_path / "ten-minutes-aaa.txt").open("a") as file:
        file.write("2 tra")
    assert ran_at("ten-minutes", "aaa", tmp_path) == {1}
