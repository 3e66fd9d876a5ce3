"""The reference of settings is what is declared. `python -m tests.settings.test_reference` writes it again."""

from pathlib import Path

from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.quota import AddressQuotas, ReplicationRates, UserQuotas
from ottla.settings.reference import reference
from ottla.settings.schema import Settings
from ottla.settings.server.own import OwnSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings

_KINDS: tuple[type[Settings], ...] = (
    ServerSettings,
    OwnSettings,
    TopicSettings,
    GroupSettings,
    ClientMetricsSettings,
    UserQuotas,
    AddressQuotas,
    ReplicationRates,
)
_PAGE = Path(__file__).parents[2] / "docs/reference/settings.md"


def test_the_reference_is_what_is_declared() -> None:
    assert _PAGE.read_text(encoding="utf-8") == reference()


def test_every_setting_has_a_row() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    names = [name for kind in _KINDS for name in kind.declared()]
    assert [name for name in names if f"\n| `{name}` |" not in page] == []
    assert page.count("\n| `") == len(names)


if __name__ == "__main__":
    _PAGE.write_text(reference(), encoding="utf-8")
