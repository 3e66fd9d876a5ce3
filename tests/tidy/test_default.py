"""A default stands once: where its setting is declared. Code takes it from there.

Compared by name: a literal that is given to something called as a setting is called (`retention_ms=604_800_000`,
`"linger.ms": 5`, `.get("compression.type", "producer")`), or as its end from three words on, and that is the default.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from ottla.client.settings.reference import CLIENTS
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.quota import AddressQuotas, UserQuotas
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings
from tests.tidy.source import modules, tree

_DECLARED_IN = ("ottla/settings/", "ottla/client/settings/")
#: The end of a name stands for the whole from so many words on: `lag_time_max_ms`, not `interval_ms`.
_WORDS_MIN = 3
#: Defaults that are too common to say where they come from.
_COMMON = (None, "", 0, 1, -1)
#: Values that hold whatever the default is: path and setting.
_ON_PURPOSE = {
    # Kafka makes these topics so, whatever `compression.type` the node has.
    ("ottla/broker/coordinators/groups.py", "compression_type"),
    ("ottla/broker/share/coordinators.py", "compression_type"),
    # Kafka Streams makes its topics so, whatever the brokers' default is.
    ("ottla/spark/streams/layout.py", "log_message_timestamp_type"),
    # kafka-e2e-latency reads what it writes from now on.
    ("ottla/cli/kafka/perf/latency.py", "share_auto_offset_reset"),
    # No setting says how often nodes try to reach each other.
    ("ottla/net/peer.py", "controller_quorum_election_backoff_max_ms"),
}


def _defaults() -> dict[str, dict[str, set[object]]]:
    """By the names that stand for a setting, its name and the defaults it has in servers, topics and clients."""
    declared = [
        one
        for kind in (ServerSettings, TopicSettings, GroupSettings, ClientMetricsSettings, UserQuotas, AddressQuotas)
        for one in kind.declared().values()
    ]
    named = [(one.attribute, one.default) for one in declared]
    named += [(one.attribute, one.default) for kind in CLIENTS.values() for one in kind.declared.values()]
    found: dict[str, dict[str, set[object]]] = defaultdict(lambda: defaultdict(set))
    for attribute, default in named:
        if isinstance(default, (int, float, str)) and not isinstance(default, bool) and default not in _COMMON:
            words = attribute.split("_")
            for first in range(max(1, len(words) - _WORDS_MIN + 1)):
                found["_".join(words[first:])][attribute].add(default)
    return found


_DEFAULTS = _defaults()


def _value(node: ast.expr) -> object:
    """A literal, or what one comes to: `1 << 30`, `15 * 60_000`, "5"."""
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    except (NameError, TypeError, SyntaxError, ValueError, AttributeError, ZeroDivisionError):
        return None
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _repeated(module: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, setting) of each literal that repeats a default."""
    for name, node in _given(module):
        settings = _DEFAULTS.get(re.sub(r"[.-]", "_", name).strip("_").lower())
        if settings and node is not None:
            value = _value(node)
            for attribute, defaults in settings.items():
                if isinstance(value, (int, float, str)) and value in defaults:
                    yield node.lineno, attribute
                    break


def _given(module: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Every name that is given a value in the module, and the value."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    yield target.attr if isinstance(target, ast.Attribute) else target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value
        elif isinstance(node, ast.arguments):
            with_default = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
            yield from ((each.arg, value) for each, value in zip(with_default, node.defaults, strict=True))
            yield from ((each.arg, value) for each, value in zip(node.kwonlyargs, node.kw_defaults, strict=True))
        elif isinstance(node, ast.Dict):
            yield from ((str(_text(key)), value) for key, value in zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Call) and len(node.args) >= 2:
            yield str(_text(node.args[0])), node.args[1]


def _text(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def test_a_default_stands_once() -> None:
    found = [
        f"{path}:{line}: {attribute}"
        for path in modules("ottla")
        if not path.startswith(_DECLARED_IN)
        for line, attribute in _repeated(tree(path))
        if (path, attribute) not in _ON_PURPOSE
    ]
    assert found == []


def test_a_repeated_default_is_found() -> None:
    for line in (
        "_RETENTION_MS = 604_800_000",
        "class View:\n    lag_time_max_ms: int = 30_000",
        "def produce(*, linger_ms=5): ...",
        "def produce(topic, linger_ms=5): ...",
        "Producer(linger_ms=5)",
        '{"linger.ms": "5"}',
        'settings.get("compression.type", "producer")',
        "self.segment_bytes = 1 << 30",
    ):
        assert list(_repeated(ast.parse(line))), line
    for line in ("linger_ms = 6", "linger_ms = linger", "LINGER = 5", "interval_s = 300", "f(backoff_ms=1000)"):
        assert not list(_repeated(ast.parse(line))), line
