"""Every declared setting against what Apache Kafka 4.3.1 says of it (tests/golden/settings/cfg_4.3.1.txt)."""

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import REQUIRED, ConfigType, Setting, Settings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings

_FACTS = Path(__file__).parents[1] / "golden" / "settings" / "cfg_4.3.1.txt"
_CLASSES: dict[str, type[Settings]] = {"server": ServerSettings, "topic": TopicSettings, "group": GroupSettings}


class Fact(NamedTuple):
    """One line of the facts: name | type | default | importance [| INTERNAL] | check."""

    name: str
    type: str
    default: str
    importance: str
    internal: bool
    check: str


def _facts() -> tuple[dict[str, list[Fact]], dict[str, str]]:
    facts: dict[str, list[Fact]] = {}
    modes: dict[str, str] = {}
    rows: list[Fact] = []
    for line in _FACTS.read_text().splitlines():
        if line.startswith("####"):
            rows = facts.setdefault(line.split()[1], [])
        elif line.startswith("MODES {"):
            modes = dict(entry.split("=") for entry in line[len("MODES {") : -1].split(", "))
        elif " | " in line:
            name, type_name, default, importance, *rest = (each.strip() for each in line.split(" | "))
            check = rest[-1] if rest and rest[-1] not in ("null", "INTERNAL") else ""
            rows.append(Fact(name, type_name, default, importance, "INTERNAL" in rest, check.rstrip(" |")))
    return facts, modes


FACTS, MODES = _facts()
EVERY = [(kind, fact) for kind, rows in FACTS.items() for fact in rows]


def _written(setting: Setting[object]) -> str:
    """A default as the facts write it."""
    if setting.default is REQUIRED:
        return "REQUIRED"
    if setting.default is None:
        return "null"
    if setting.type is ConfigType.LIST:
        return f"[{', '.join(setting.default)}]"
    text = setting.default_text
    assert text is not None
    return f"class {text}" if setting.type is ConfigType.CLASS else text


@pytest.mark.parametrize("kind", _CLASSES)
def test_exactly_kafkas_settings_are_declared(kind: str) -> None:
    assert sorted(fact.name for fact in FACTS[kind]) == list(_CLASSES[kind].declared())


def test_the_facts_are_all_there() -> None:
    assert {kind: len(rows) for kind, rows in FACTS.items()} == {"server": 360, "topic": 34, "group": 17}


@pytest.mark.parametrize(("kind", "fact"), EVERY, ids=lambda each: each.name if isinstance(each, Fact) else each)
def test_a_setting_is_declared_as_kafka_has_it(kind: str, fact: Fact) -> None:
    setting = _CLASSES[kind].declared()[fact.name]
    ours = Fact(
        setting.name,
        setting.type.name,
        _written(setting),
        setting.importance,
        setting.internal,
        "" if setting.check is None else str(setting.check),
    )
    assert ours == fact


def test_every_dynamic_mode_is_kafkas() -> None:
    declared = ServerSettings.declared()
    rates = {name for name in MODES if name not in declared}
    assert {name: setting.mode for name, setting in declared.items() if setting.mode != "read-only"} == {
        name: mode for name, mode in MODES.items() if name not in rates
    }
    # KIP-73's rates are set while nodes run and nowhere else.
    assert all(name.endswith((".rate", ".max.bytes.per.second")) for name in rates)


@pytest.mark.parametrize("kind", _CLASSES)
def test_an_attribute_is_the_name_with_underscores(kind: str) -> None:
    for name, setting in _CLASSES[kind].declared().items():
        assert setting.attribute == name.replace(".", "_")


@pytest.mark.parametrize("kind", _CLASSES)
def test_every_setting_says_in_a_sentence_what_it_is(kind: str) -> None:
    for setting in _CLASSES[kind].declared().values():
        assert setting.doc[0].isupper() or setting.doc.startswith("min.insync"), setting
        assert setting.doc.endswith("."), setting
        assert len(setting.doc) > 15, setting


@pytest.mark.parametrize("kind", _CLASSES)
def test_every_default_passes_its_own_check(kind: str) -> None:
    for setting in _CLASSES[kind].declared().values():
        if setting.default is not REQUIRED and setting.default_text is not None:
            assert setting.parse(setting.default_text) == setting.default, setting


def test_a_setting_of_a_topic_or_group_falls_back_to_one_of_the_server_with_the_same_default() -> None:
    server = ServerSettings.declared()
    for settings in (TopicSettings, GroupSettings):
        for setting in settings.declared().values():
            if setting.broker is None or server[setting.broker].derived:
                continue
            assert server[setting.broker].type is setting.type, setting
            assert server[setting.broker].default == setting.default, setting
