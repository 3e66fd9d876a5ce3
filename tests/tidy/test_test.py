"""The tests under test: sentences, without sleeping, in a place of their own."""

import ast
import re

from tests.tidy.source import modules, tree

#: Where other programs are the point.
_MAY_START_PROGRAMS = (
    "tests/interop/",
    "tests/crash/",
    "tests/world/",
    "tests/spark/",
    "tests/cli/",
    "tests/wire/",
    "tests/testing/",
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
    found = [
        f"{path}:{node.lineno}"
        for path in modules("tests")
        if not path.startswith("tests/interop/")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and _sleeps(node)
    ]
    assert found == []


def _sleeps(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    # sleep(0) gives way and waits for nothing.
    gives_way = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name == "sleep" and not gives_way


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


def test_every_test_file_holds_tests() -> None:
    """Functions, or a Hypothesis machine's TestCase."""
    empty = [
        path
        for path, text in modules("tests").items()
        if path.rpartition("/")[2].startswith("test_") and not re.search(r"def test_|\.TestCase\b", text)
    ]
    assert empty == []
