"""The source itself under test: sizes, names, what it says and what it must not say."""

import ast
import re
from collections import Counter, defaultdict

from tests.tidy.source import modules, packages, texts, tree

_LINES_MAX = 500
_FUNCTION_LINES_MAX = 60
_FOLDER_MAX = 25
#: Class names that several packages use, each for its own.
_REPEATED = {
    # What comes into a coordinator's machine and what it wants done.
    "Answer",
    "TimePassed",
    "TopicsChanged",
    # `ottla.Cluster`, and what a client knows of one.
    "Cluster",
    # A replica's machine and what stands below it.
    "Appended",
    "Fetched",
    "PartitionState",
}
#: Loops over records, written out because a call for each field would double their time (measured where they are).
_WRITTEN_OUT = {"ottla/columns/record.py:decode_records_in_turn"}
#: Each of these names accepts anything.
_BANNED_MODULES = {"util", "utils", "common", "core", "manager", "helper", "helpers", "impl", "misc", "base", "shared"}
_BANNED_ENDINGS = ("Manager", "Helper", "Helpers", "Util", "Utils", "Impl")
_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImplemented" r"Error")
_DODGED = re.compile(r"\b(skip|skipif|xfail|importorskip)\b\(|mark\.(skip|xfail)")
_MACHINE = re.compile(r"(?<![\w.-])/(wo" r"rk|ro" r"ot|fa" r"rm|ho" r"me)/|bash_" r"jobs")
_HOSTS = re.compile(
    r"\b(py" r"pi\.org|pythonhos" r"ted\.org|repo1?\.mav" r"en|npm" r"js\.org|proxy\.gol" r"ang|deb" r"ian\.org)"
)
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\ufe0f]")


def test_no_file_is_longer_than_people_read() -> None:
    lengths = {path: text.count("\n") for path, text in modules("ottla", "tests", "bench", "examples").items()}
    assert {path: length for path, length in lengths.items() if length > _LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path in modules("ottla"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > _FUNCTION_LINES_MAX:
                    long[f"{path}:{node.name}"] = length
    assert {name: length for name, length in long.items() if name not in _WRITTEN_OUT} == {}


def test_no_name_accepts_anything() -> None:
    banned = [path for path in modules("ottla") if _BANNED_MODULES & set(path.removesuffix(".py").split("/"))]
    assert banned == []
    classes = [
        f"{path}:{node.name}"
        for path in modules("ottla")
        if not path.startswith("ottla/wire/")  # Kafka's own names
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(_BANNED_ENDINGS)
    ]
    assert classes == []


def test_nothing_is_left_for_later() -> None:
    found = [
        f"{path}:{number}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if path.endswith((".py", ".java", ".go", ".js", ".mjs")) and _UNFINISHED.search(line)
    ]
    assert found == []


def test_no_test_is_dodged() -> None:
    found = [
        f"{path}:{number}"
        for path, text in modules("tests").items()
        if not path.startswith("tests/tidy/")
        for number, line in enumerate(text.splitlines(), 1)
        if _DODGED.search(line)
    ]
    assert found == []


def test_nothing_names_the_machine_it_was_written_on() -> None:
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if _MACHINE.search(line) or _HOSTS.search(line)
    ]
    assert found == []


def test_text_is_plain() -> None:
    assert [path for path, text in texts().items() if _EMOJI.search(text)] == []
    assert [path for path, text in texts().items() if text and not text.endswith("\n")] == []


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in modules("ottla", "bench", "examples") if not ast.get_docstring(tree(path))]
    assert silent == []


def test_every_package_introduces_itself() -> None:
    """A package's docstring is its README: what it is, its invariant, which file to read first."""
    short = [name for name in packages() if len(ast.get_docstring(tree(f"ottla/{name}/__init__.py")) or "") < 120]
    assert short == []


def test_every_public_class_and_function_says_what_it_is() -> None:
    silent = [
        f"{path}:{node.name}"
        for path in modules("ottla")
        if not path.startswith("ottla/wire/")  # a wire class is named by Kafka's glossary
        for node in tree(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("_") and not _overloads(node) and not ast.get_docstring(node)
    ]
    assert silent == []


def _overloads(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def test_no_folder_holds_more_than_people_look_through() -> None:
    sizes = Counter(path.rpartition("/")[0] for path in modules("ottla"))
    del sizes["ottla/wire/api"]  # one file an API
    assert {folder: size for folder, size in sizes.items() if size > _FOLDER_MAX} == {}


def test_a_public_class_name_stands_for_one_class() -> None:
    homes = defaultdict(set)
    for path in modules("ottla"):
        # What Kafka's schema names is Kafka's; a plan's nodes and their operators bear one name.
        if path.startswith(("ottla/wire/api/", "ottla/wire/record/", "ottla/flow/", "ottla/streams/")):
            continue
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path)
    repeated = {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}
    assert {name: paths for name, paths in repeated.items() if name not in _REPEATED} == {}
    assert _REPEATED - repeated.keys() == set()
