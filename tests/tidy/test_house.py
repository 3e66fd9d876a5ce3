"""The house: documents name what is there, contracts name every package, settings are honest."""

import ast
import re
import sys
import tomllib
from importlib import import_module
from typing import Any

from ottla.settings.group.settings import BOUNDED, GroupSettings
from ottla.settings.schema import Settings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings
from ottla.settings.view import SettingsView
from tests.tidy.source import ROOT, files, modules, packages, prose_lines, texts, tree

_PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
_CONTRACTS = {contract["name"]: contract for contract in _PYPROJECT["tool"]["importlinter"]["contracts"]}
#: Packages that never touch the machine (docs/ARCHITECTURE.md).
_PURE = {
    "columns",
    "controller",
    "coordinator",
    "flow",
    "group",
    "kernel",
    "metadata",
    "raft",
    "replica",
    "serde",
    "settings",
    "share",
    "txn",
    "wire",
}
#: Modules that are imported only by those who have the extra: spark, arrow, test.
_EXTRAS = (
    "ottla/spark/",
    "ottla/columns/",
    "ottla/flow/vector/",
    "ottla/serde/",
    "ottla/client/consumer/table.py",
    "ottla/client/producer/outgoing.py",
    "ottla/security/key_set.py",
    "ottla/testing.py",
)
#: Packages whose reading of a setting does not count: where settings are declared, and what runs without a node.
_NO_NODE = {"kernel", "settings", "columns", "serde", "security", "client", "operations", "cli", "spark"}
#: What nodes alone read in packages that clients share with them.
_OF_NODES = (
    "ottla/settings/server/settings.py",
    "ottla/security/listener_tls.py",
    "ottla/security/node_login.py",
    "ottla/security/oauth.py",
    "ottla/security/assertion.py",
)
_PATH = re.compile(r"(?<![\w/.-])((?:ottla|tests|docs|bench|examples|\.ci)/[\w./-]*\w)")
_WORD = re.compile(r"\w+")
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
#: `name`, `name.of.parts`, `room/file`, `call()`; not settings, which have dashes or are checked elsewhere.
_NAMED = re.compile(r"`([A-Za-z_]\w*(?:[./]\w+)*)(?:\(\))?`")
#: Names of the kernel's, of C, of NumPy and of Apache Kafka's scripts.
_FOREIGN = {"copy_folio_from_iter_atomic", "memcpy", "V100", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS"}
#: "Whoever asks waits", "Of these a third is Python", "shall", "anew", "for ever".
_UNPLAIN = re.compile(r"\b(?:shall|anew|for ever|[Ww]hoever)\b|(?:^|[.:] )(?:Of (?!course)|Who |Whose )(?!.*\?)")
#: In code, also the first word: "Of each record its headers", "Whose it is", "It takes longer", "One of these".
_OLD_WORD = re.compile(r"\b(?:shall|anew|for ever|[Ww]hoever|[Nn]obody|[Ss]omebody)\b")
_HEADLESS = re.compile(r"(?:Of|Who|Whose|It|Those|One|That)\b")
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def _documents() -> dict[str, str]:
    return {path: text for path, text in texts().items() if path.endswith(".md") and not path.startswith("tests/")}


def test_documents_name_only_files_that_are_there() -> None:
    missing = set()
    for path, text in _documents().items():
        for name in _PATH.findall(text):
            there = ROOT / name
            # `log/log` in a diagram and `docs/decisions/NNNN-title.md` in a sentence stand for files, too.
            if "NNNN" in name or there.exists() or there.with_suffix(".py").exists():
                continue
            if name.startswith(("bench/results", "tests/interop/RESULTS.md")):
                continue  # made by `make bench` and `make interop`
            missing.add(f"{path}: {name}")
    assert sorted(missing) == []


def test_documents_name_only_what_stands_in_the_source() -> None:
    """A name in backticks is a word of the source or a file; decisions tell what was, and may name what went; what one
    comes from has names of its own."""
    source = [path for path in texts() if not path.endswith(".md")]
    words = {word for path in source for word in _WORD.findall(texts()[path])} | _FOREIGN
    for path in files():
        words |= {path.name, path.stem, *_WORD.findall(path.stem)}
    missing = {
        f"{path}: {name}"
        for path, text in _documents().items()
        if not path.startswith(("docs/decisions/", "docs/coming-from/")) and path != "CHANGELOG.md"
        for name in _NAMED.findall(_BLOCK.sub("", text))
        if any(word not in words for word in _WORD.findall(name))
    }
    assert sorted(missing) == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path}: {target}"
        for path, text in _documents().items()
        for target in _LINK.findall(text)
        if not ((ROOT / path).parent / target).exists()
    ]
    assert broken == []


def test_docstrings_and_comments_speak_plain_english() -> None:
    """The subject first, named by what it is."""
    found = []
    for path in modules("ottla"):
        found += [
            f"{path}:{number}: {line[:80]}"
            for number, line, begins in prose_lines(path)
            if _OLD_WORD.search(line) or (begins and _HEADLESS.match(line))
        ]
    assert found == []


def test_documents_speak_plain_english() -> None:
    """The subject first, and today's words; decisions are as they were written, settings are the declarations'."""
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in _documents().items()
        if path.startswith(("docs/", "README"))
        and not path.startswith(("docs/decisions/0", "docs/reference/settings.md"))
        for number, line in enumerate(text.splitlines(), 1)
        if _UNPLAIN.search(line)
    ]
    assert found == []


def test_the_architecture_knows_every_package() -> None:
    text = texts()["docs/ARCHITECTURE.md"]
    assert [name for name in packages() if not re.search(rf"\b{name}\b", text)] == []


def test_the_layers_name_every_package_and_no_other() -> None:
    layers = _CONTRACTS["Imports point down"]["layers"]
    assert sorted(name.strip() for layer in layers for name in layer.split("|")) == list(packages())


def test_the_pure_packages_are_all_under_their_contract() -> None:
    pure = _CONTRACTS["The pure packages never touch the machine"]["source_modules"]
    assert {name.removeprefix("ottla.") for name in pure} == _PURE & set(packages())


def test_only_one_package_may_import_pyspark() -> None:
    others = _CONTRACTS["Only ottla.spark imports pyspark"]["source_modules"]
    assert {name.removeprefix("ottla.") for name in others} >= set(packages()) - {"spark", "cli"}


def test_a_decision_has_a_number_of_its_own_and_says_why() -> None:
    numbers = []
    for path, text in texts().items():
        if not path.startswith("docs/decisions/") or path.endswith("README.md"):
            continue
        name = re.fullmatch(r"docs/decisions/(\d{4})-[a-z0-9-]+\.md", path)
        assert name, path
        assert text.startswith(f"# {name[1]}: "), path
        for part in ("Context", "Choice", "What would change our mind"):
            assert part in text, f"{path} does not say: {part}"
        numbers.append(name[1])
    assert numbers
    assert len(set(numbers)) == len(numbers)


def test_every_decision_stands_in_the_index_once_with_what_it_decides() -> None:
    index = texts()["docs/decisions/README.md"]
    rows = re.findall(r"^\| \[(\d{4}): .+\]\((\1-[a-z0-9-]+\.md)\) \| (?:decides|in force).*\|$", index, re.MULTILINE)
    records = sorted(path for path in texts() if re.match(r"docs/decisions/\d", path))
    assert sorted(f"docs/decisions/{file}" for _, file in rows) == records


def test_the_base_install_is_all_that_a_node_imports() -> None:
    """What ottla imports at module level is standard library or in the base, outside of what belongs to an extra."""
    base = {re.split(r"[>=<;\[]", each)[0].strip().replace("-", "_") for each in _PYPROJECT["project"]["dependencies"]}
    known = sys.stdlib_module_names | base | {"ottla", "google_crc32c"}
    foreign = {
        f"{path}: {name}"
        for path in modules("ottla")
        if not path.startswith(_EXTRAS)
        for node in tree(path).body
        for name in _imported(node)
        if name not in known
    }
    assert sorted(foreign) == []


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module.partition(".")[0]]
    return []


def test_a_setting_says_honestly_whether_a_node_does_anything_with_it() -> None:
    """Served is what some module reads, or what a served setting of a topic or group falls back to."""
    for view in ("ottla.group.setting", "ottla.share.event", "ottla.txn.coordinator"):
        import_module(view)
    used = _read_attributes()
    wrong = {}
    overrides: tuple[type[Settings], ...] = (TopicSettings, GroupSettings)
    for settings in overrides:
        for each in settings.declared().values():
            if each.served and each.broker is not None:
                used.add(ServerSettings.declared()[each.broker].attribute)
    for name in BOUNDED:
        # The bounds of a group's setting are found by its name.
        kind, _, rest = name.partition(".")
        used |= {f"group_{kind}_{bound}_{rest.replace('.', '_')}" for bound in ("min", "max")}
    used.add("group_streams_max_standby_replicas")
    for settings in (*overrides, ServerSettings):
        for each in settings.declared().values():
            if each.served != (each.attribute in used):
                wrong[f"{settings.__name__} {each.name}"] = "served=False" if each.served else "served"
    assert wrong == {}


def _read_attributes() -> set[str]:
    """Attributes that a node reads; of the kernel only the file that works settings out from one another."""
    nodes = [path for path in modules("ottla") if path.split("/")[1] not in _NO_NODE]
    read = {
        node.attr for path in (*nodes, *_OF_NODES) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)
    }
    views = {
        view._prefix + each for view in SettingsView.__subclasses__() for each in vars(view).get("__match_args__", ())
    }
    return read | views | {"broker_id"}  # another name of node.id
