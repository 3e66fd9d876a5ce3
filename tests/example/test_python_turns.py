"""Which Python .ci/run takes: all versions in turn, the same one for the same commit, and a loud word for a lack."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

_MINORS = (11, 12, 13)
#: `.ci/newest` runs it.
_NEWEST = 14


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs that stand for Python 3.11 and 3.13, as `.ci/python` asks them."""
    for name, version in (("python3", "3.11"), ("python3.11", "3.11"), ("python3.13", "3.13"), ("python3.12", "")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = -V ] && echo "Python {version}.1" || echo "{version}"\n')
        program.chmod(0o755)
    return tmp_path


def taken(machine: Path, commit: str, **environment: str) -> tuple[str, str]:
    """(the program that is taken, what is said of it)"""
    run = subprocess.run(
        [str(ROOT / ".ci" / "python"), commit],
        env={"PATH": f"{machine}:/usr/bin:/bin", "HOME": str(machine), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(run.stdout.strip()).name, run.stderr.strip()


def test_commits_take_the_versions_in_turn_and_each_always_the_same(machine: Path) -> None:
    assert taken(machine, "00000005eac609")[0] == "python3.11"
    for _ in range(2):
        program, said = taken(machine, "00000025eac609")
        assert program == "python3.13"
        assert said == "== Python 3.13, the turn of commit 00000025e (OTTLA_CI_PYTHON=3.13 repeats it)"
    assert taken(machine, "00000025eac609", OTTLA_CI_PYTHON="3.11")[0] == "python3.11"


def test_a_version_that_the_machine_lacks_is_said_loudly_with_those_it_has(machine: Path) -> None:
    program, said = taken(machine, "00000015eac609")
    assert program == "python3"
    assert said.startswith("== PYTHON 3.12 IS NOT ON THIS MACHINE (found: 3.11 3.13): commit 00000015e runs with ")
    assert said.endswith("/python3, Python 3.11.1")
    assert len(said.splitlines()) == 1


def test_a_version_is_found_where_pyenv_keeps_it(machine: Path) -> None:
    kept = machine / ".pyenv" / "versions" / "3.12.9" / "bin" / "python"
    kept.parent.mkdir(parents=True)
    (machine / "python3.11").rename(kept)
    kept.write_text("#!/bin/sh\necho 3.12\n")
    assert taken(machine, "00000015eac609")[0] == "python"


def test_the_types_are_checked_for_the_newest_version_that_takes_a_turn() -> None:
    newest = subprocess.run([str(ROOT / ".ci" / "python"), "--newest"], capture_output=True, text=True, check=True)
    assert newest.stdout == f"3.{max(_MINORS)}\n"
    commands = subprocess.run(["make", "-n", "check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    asked = [line.rpartition("--python-version ")[2] for line in commands.splitlines() if "--python-version" in line]
    assert asked == ["$(.ci/python --newest)"]


def test_the_versions_that_take_turns_are_told_to_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    turns = (ROOT / ".ci" / "python").read_text()
    assert f"versions=({' '.join(f'3.{minor}' for minor in _MINORS)})" in turns
    assert [word.rpartition(".")[2] for word in project["classifiers"] if " :: 3." in word] == [
        str(minor) for minor in (*_MINORS, _NEWEST)
    ]
    assert project["requires-python"] == f">=3.{_MINORS[0]},<3.{_NEWEST + 1}"
    assert sys.version_info[1] in (*_MINORS, _NEWEST)
