"""The tests under test: sentences, without sleeping, in a place of their own."""

import ast
import re

from tests.mutants.mutant import ROOT, load
from tests.tidy.source import modules, tree

#: Where other programs are the point.
_MAY_START_PROGRAMS = (
    "tests/abuse/",
    "tests/chaos/",
    "tests/interop/",
    "tests/crash/",
    "tests/deploy/",
    "tests/docs/",
    "tests/world/",
    "tests/spark/",
    "tests/cli/",
    "tests/wire/",
    "tests/embedded/",
    "tests/host/",
    "tests/evidence.py",
    "tests/node_processes.py",
    "tests/example/",
    "tests/mutants/",
    "tests/client/certificate.py",
    "tests/client/test_manner.py",
)


def test_a_tests_name_is_a_sentence() -> None:
    words = re.compile(r"test_\w+?_\w+?_\w+")
    short = [
        f"{path}:{node.name}"
        for path in modules("tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_") and not words.match(node.name)
    ]
    assert short == []


def test_no_test_sleeps() -> None:
    """What drives other processes may pause, between two looks at them: in one place, which no test calls."""
    found = [
        f"{path}:{node.lineno}"
        for path in modules("tests")
        if not path.startswith(("tests/interop/", "tests/chaos/")) and path != "tests/crash/pause.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and _sleeps(node)
    ]
    assert found == []
    pausing = [
        path
        for path in modules("tests")
        if path.rpartition("/")[2].startswith("test_")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == "tests.crash.pause"
    ]
    assert pausing == []


def _sleeps(call: ast.Call) -> bool:
    """`sleep`, and what nobody can end early: a wait for an event, condition or lock that is made on the spot."""
    name = _name(call.func)
    if name == "sleep":
        # sleep(0) gives way and waits for nothing.
        return not (len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
    if name in ("wait", "wait_for", "acquire", "join", "get") and isinstance(call.func, ast.Attribute):
        made = call.func.value
        bounded = bool(call.args or call.keywords)
        return bounded and isinstance(made, ast.Call) and _name(made.func) in _MADE_TO_WAIT
    if name in ("select", "poll"):
        lists = [each for each in call.args if isinstance(each, ast.List)]
        return len(lists) >= 3 and not any(each.elts for each in lists)
    if ast.unparse(call.func) in ("signal.pause", "signal.sigtimedwait"):
        return True
    return name == "run" and "sleep" in (
        call.args[0].elts[0].value
        for _ in [0]
        if call.args and isinstance(call.args[0], ast.List) and call.args[0].elts
        if isinstance(call.args[0].elts[0], ast.Constant)
    )


#: Made by nobody else, so set or released by nobody: to wait for one is to sleep.
_MADE_TO_WAIT = {"Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Queue", "SimpleQueue", "Future"}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_sleeps_by_other_names_are_found() -> None:
    for line in (
        "time.sleep(1)",
        "sleep(0.1)",
        "Event().wait(0.3)",
        "threading.Event().wait(timeout=0.3)",
        "Condition().wait(1)",
        "queue.Queue().get(timeout=1)",
        "select.select([], [], [], 1)",
        "signal.pause()",
        'subprocess.run(["sleep", "1"])',
    ):
        assert any(isinstance(node, ast.Call) and _sleeps(node) for node in ast.walk(ast.parse(line))), line
    for line in ("sleep(0)", "event.wait(30)", "select.select([ours], [], [], 0.1)", "process.wait()", "done.get()"):
        assert not any(isinstance(node, ast.Call) and _sleeps(node) for node in ast.walk(ast.parse(line))), line


def test_only_tests_about_programs_start_programs() -> None:
    """In the places for it, and in files of tests that are marked `interop`."""
    found = {
        path
        for path, text in modules("tests").items()
        if not path.startswith(_MAY_START_PROGRAMS) and "mark.interop" not in text
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Import) and any(each.name == "subprocess" for each in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "subprocess")
    }
    assert sorted(found) == []


def test_every_planted_bug_fits_the_source() -> None:
    """Who moves a line moves the bug that is planted there."""
    found = {f"{each.package}/{each.name}": each.misfit(ROOT) for each in load()}
    assert {name: why for name, why in found.items() if why} == {}


def test_every_test_file_holds_tests() -> None:
    """Functions, or a Hypothesis machine's TestCase."""
    empty = [
        path
        for path, text in modules("tests").items()
        if path.rpartition("/")[2].startswith("test_") and not re.search(r"def test_|\.TestCase\b", text)
    ]
    assert empty == []
