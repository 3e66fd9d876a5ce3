"""References to files, directories and the environment in a node's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, ConfigResource, ResourceType
from ottla.host.config_providers import resolve, server_settings
from ottla.kernel.error import OttlaError
from tests.settings.test_server_settings import COMBINED

_PACKAGE = "org.apache.kafka.common.config.provider"
_PROVIDERS = {
    "config.providers": "env, file,dir",
    "config.providers.env.class": f"{_PACKAGE}.EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "OTTLA_.*",
    "config.providers.file.class": f"{_PACKAGE}.FileConfigProvider",
    "config.providers.dir.class": f"{_PACKAGE}.DirectoryConfigProvider",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets.properties").write_text("key.password = f1le\nother: x\n")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "password").write_text("d1r\n")
    (tmp_path / "outside").write_text("not for you")
    (tmp_path / "dir" / "link").symlink_to(tmp_path / "outside")
    monkeypatch.setenv("OTTLA_PASSWORD", "e:nv}")
    monkeypatch.setenv("PRIVATE", "hidden")
    return tmp_path


def resolved(place: Path, text: str, **more: str) -> str:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return resolve({**_PROVIDERS, **given, "a.setting": text.replace("PLACE", str(place))})["a.setting"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:OTTLA_PASSWORD}", "e:nv}"),
        ("${env::OTTLA_PASSWORD}", "e:nv}"),
        ("${file:PLACE/secrets.properties:key.password}", "f1le"),
        ("${dir:PLACE/dir:password}", "d1r\n"),
        (
            'user="${file:PLACE/secrets.properties:other}" password="${env:OTTLA_PASSWORD}";',
            'user="x" password="e:nv}";',
        ),
        ("${unknown:OTTLA_PASSWORD}", "${unknown:OTTLA_PASSWORD}"),
        ("${OTTLA_PASSWORD}", "${OTTLA_PASSWORD}"),
        ("$env:OTTLA_PASSWORD", "$env:OTTLA_PASSWORD"),
    ],
)
def test_references_are_replaced_where_they_stand(place: Path, text: str, value: str) -> None:
    assert resolved(place, text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${env:OTTLA_ABSENT}", "the environment variable OTTLA_ABSENT is not set"),
        ("${env:PRIVATE}", "config.providers.env.param.allowlist.pattern does not match PRIVATE"),
        ("${env:a:OTTLA_PASSWORD}", "a reference to the environment has no path"),
        ("${file:PLACE/secrets.properties:nope}", "the file has no key nope"),
        ("${file:PLACE/absent:key}", "cannot read PLACE/absent: No such file or directory"),
        ("${file:key}", "the path is missing"),
        ("${dir:PLACE/absent:key}", "PLACE/absent is not a directory"),
        ("${dir:PLACE/dir:absent}", "cannot read PLACE/dir/absent: No such file"),
        ("${dir:PLACE/dir:../outside}", "the key must be the name of a file in the directory"),
    ],
)
def test_what_cannot_be_resolved_stops_the_start_and_tells_no_value(place: Path, text: str, words: str) -> None:
    with pytest.raises(OttlaError) as error:
        resolved(place, text)
    said = str(error.value).replace(str(place), "PLACE")
    assert said.startswith(f"a.setting: cannot resolve {text}: ")
    assert words in said
    assert "hidden" not in said


@pytest.mark.parametrize("path", ["outside", "dir/../outside", "dir/link"])
def test_only_what_is_below_an_allowed_path_is_read(place: Path, path: str) -> None:
    allowed = {"config__providers__file__param__allowed__paths": f"{place}/dir, {place}/more"}
    with pytest.raises(OttlaError, match=r"is not below a path of config.providers.file.param.allowed.paths$"):
        resolved(place, f"${{file:PLACE/{path}:not}}", **allowed)
    (place / "dir" / "inside").write_text("key=value")
    assert resolved(place, "${file:PLACE/dir/inside:key}", **allowed) == "value"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("config__providers__file__class", "org.example.Vault", "this node has no such config provider"),
        ("config__providers__file__class", "", "this node has no such config provider"),
        ("config__providers__file__param__allowed__paths", "relative", "expected absolute paths"),
        ("config__providers__env__param__allowlist__pattern", "(", "not a regular expression"),
    ],
)
def test_a_provider_that_cannot_be_is_refused(place: Path, name: str, value: str, words: str) -> None:
    with pytest.raises(OttlaError, match=words) as error:
        resolved(place, "x", **{name: value})
    assert str(error.value).startswith(f"{name.replace('__', '.')}=")


def test_a_provider_refers_to_no_provider(place: Path) -> None:
    given = {**_PROVIDERS, "config.providers.dir.param.allowed.paths": "/${env:OTTLA_PASSWORD}"}
    assert resolve(given) == given


def test_a_node_resolves_its_file_and_leaves_dynamic_settings_alone(place: Path) -> None:
    given = {**_PROVIDERS, "num.partitions": f"${{dir:{place}/dir:count}}"}
    (place / "dir" / "count").write_text("7\n")
    with ottla.Node(settings=given) as node, Admin(node.bootstrap_servers) as admin:
        itself = ConfigResource(ResourceType.BROKER, "1")
        assert admin.describe_configs([itself])[itself]["num.partitions"].value == "7"
        admin.alter_configs({itself: {"listener.name.plaintext.plug.in": "${env:OTTLA_PASSWORD}"}}).check()
        assert "e:nv}" not in str(admin.describe_configs([itself]))


def test_a_relative_log_directory_is_told_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Apache Kafka: a client names the directory to move to by the path that DescribeLogDirs has told it."""
    monkeypatch.chdir(tmp_path)
    given = {"log.dirs": "data, /a/../b", "metadata.log.dir": "m/", "cordoned.log.dirs": "data"}
    settings = server_settings(COMBINED | given)
    assert settings.log_dirs == (f"{tmp_path}/data", "/a/../b"), "what is not a name may be behind a link"
    assert settings.directories == [f"{tmp_path}/data", "/a/../b", f"{tmp_path}/m"]
    assert settings.cordoned_log_dirs == (f"{tmp_path}/data",)
    assert server_settings(COMBINED | {"log.dirs": "data", "cordoned.log.dirs": "*"}).cordoned_log_dirs == ("*",)
