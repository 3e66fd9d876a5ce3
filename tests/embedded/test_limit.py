"""The limit of a test's time, tried on a run of pytest in a process of its own."""

import re
import signal
import subprocess
import sys
from pathlib import Path

_CONFTEST = """
from tests.limit import Limit

def pytest_configure(config):
    config.pluginmanager.register(Limit(config, cleanup_seconds=0.5))
"""
_TESTS = """
import ctypes, threading
import pytest

def test_one_is_good(): pass
def test_two_is_wrong(): assert 1 == 2
def test_three_waits_in_python(): threading.Event().wait()
def test_four_is_good(capfd): print("hello")

def test_five_waits_in_c():
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)

@pytest.fixture
def stubborn():
    yield
    test_five_waits_in_c()

def test_six_waits_in_its_teardown(stubborn): pass
@pytest.mark.parametrize("n", range(3))
def test_seven_is_good(n): pass
"""


def _pytest(directory: Path, *arguments: str) -> tuple[int, str]:
    directory.joinpath("conftest.py").write_text(_CONFTEST)
    directory.joinpath("test_it.py").write_text(_TESTS)
    directory.joinpath("pytest.ini").write_text("[pytest]\ntimeout = 1\ntimeout_method = signal\n")
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command,
        cwd=directory,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    code, said = _pytest(tmp_path)
    assert code == 1
    *_, summary = said.splitlines()
    # The sixth test's call passes before its teardown hangs.
    assert re.match(r"4 failed, 6 passed in ", summary), said
    failed = re.findall(r"^FAILED test_it.py::(\w+)", said, re.MULTILINE)
    assert failed == [
        "test_two_is_wrong",
        "test_three_waits_in_python",
        "test_five_waits_in_c",
        "test_six_waits_in_its_teardown",
    ]
    assert "in test_five_waits_in_c" in said


def test_the_last_test_of_a_run_may_be_the_one(tmp_path: Path) -> None:
    code, said = _pytest(tmp_path, "-k", "good or five", "--deselect", "test_it.py::test_seven_is_good")
    assert code == 1
    assert re.match(r"1 failed, 2 passed", said.splitlines()[-1]), said


def test_an_interrupt_reaches_tests_that_a_shell_started_in_the_background() -> None:
    program = "import signal; signal.raise_signal(signal.SIGINT)"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == -signal.SIGINT
