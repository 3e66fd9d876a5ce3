"""What .ci/run makes of tests that fail: one or two get a second attempt that is told. What runs beside what."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

#: A `make` that notes what it was asked for in `made` and says what a file named like its target says. If there is a
#: pipe `meet`, `make test` and `make interop` each wait there for the other.
_MAKE = """#!/bin/sh
echo "$*" >>"{0}/made"
if [ -p "{0}/meet" ]; then
    case $1 in
    test) timeout 50 cat "{0}/meet" || exit 2 ;;
    interop) timeout 50 cp /dev/null "{0}/meet" || exit 2 ;;
    esac
fi
says="{0}/$1"
case "$*" in *--last-failed*) says=$says.again ;; esac
cat "$says" 2>/dev/null || {{ echo "5 passed in 1.00s"; exit 0; }}
if grep -q failed "$says"; then exit 2; fi
"""
_FAILED = "FAILED tests/a/test_b.py::test_c[d e] - AssertionError\n{} failed, 9 passed in 1.00s"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of which only .ci is real: what `make` says is in files, and it fails if it should."""
    shutil.copytree(ROOT / ".ci", tmp_path / "project" / ".ci")
    programs = tmp_path / "bin"
    programs.mkdir()
    # Nothing is installed here, and every program is there.
    for name, text in {"make": _MAKE.format(tmp_path), "apt-get": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def outcome(project: Path, says: Mapping[str, str]) -> tuple[int, list[str]]:
    """The exit code, and the lines that the run ends with."""
    for name, text in says.items():
        (project / name).write_text(text + "\n")
    run = subprocess.run(
        [str(project / "project" / ".ci" / "run")],
        env={"PATH": f"{project / 'bin'}:/usr/bin:/bin", "HOME": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout.splitlines()


def test_a_test_that_passes_at_the_second_attempt_is_named(project: Path) -> None:
    code, lines = outcome(project, {"interop": _FAILED.format(1), "interop.again": "1 passed in 0.10s"})
    assert (code, lines[-1]) == (0, "30 passed, 0 failed")
    assert lines[-2] == "FAILED tests/a/test_b.py::test_c[d e] - AssertionError"
    assert lines[-3].startswith("== at the second attempt only")
    assert lines.count(lines[-2]) == 2, "the first attempt is shown too"


@pytest.mark.parametrize(
    ("says", "failed"),
    [
        ({"test": _FAILED.format(1), "test.again": "1 failed in 0.10s"}, 1),
        ({"test": _FAILED.format(2), "test.again": "1 passed in 0.10s"}, 2),
        ({"test": _FAILED.format(3), "test.again": "3 passed in 0.10s"}, 3),
        ({"check": _FAILED.format(1), "check.again": "1 passed in 0.10s"}, 1),
        ({"test": "Traceback: it failed, without a closing line", "test.again": "1 passed in 0.10s"}, 1),
    ],
)
def test_others_fail_the_run(project: Path, says: dict[str, str], failed: int) -> None:
    code, lines = outcome(project, says)
    assert code == 1
    assert lines[-1].endswith(f", {failed} failed")
    assert not any("second attempt only" in line for line in lines)


def test_the_tests_and_interop_run_at_the_same_time(project: Path) -> None:
    os.mkfifo(project / "meet")
    code, lines = outcome(project, {})
    assert (code, lines[-1]) == (0, "25 passed, 0 failed")


def test_each_part_remembers_its_own_failures(project: Path) -> None:
    """Both run at the same time: what one forgets, the other must not have to try again."""
    says = {part: _FAILED.format(1) for part in ("test", "interop")}
    outcome(project, says | {f"{part}.again": "1 passed in 0.10s" for part in says})
    made = [line.split() for line in (project / "made").read_text().splitlines()]
    # Of two arguments with the same name, make takes the last.
    caches = {part: [words[-1] for words in made if words[0] == part] for part in says}
    assert caches == {part: [f"cache_dir=build/ci/{part}.cache"] * 2 for part in says}
