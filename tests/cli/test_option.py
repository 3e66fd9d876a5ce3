"""The options that the tools share: addresses, names of Kafka's options, completion, questions, second clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import click
import pytest

from ottla import client as clients
from ottla.cli import option
from ottla.cli.option import Commands, Tool, as_json, cluster, complete_group, complete_topic, pairs
from ottla.client import ErrorCode, KafkaError
from ottla.kernel.error import OttlaError


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("h", "h:9092"),
        ("h:1", "h:1"),
        (" a , b:2 ,, c", "a:9092,b:2,c:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:5", "[::1]:5"),
        ("SSL://h", "SSL://h:9092"),
        ("SSL://h:7", "SSL://h:7"),
    ],
)
def test_an_address_without_a_port_gets_kafkas(given: str, whole: str) -> None:
    assert option._with_ports(given) == whole


@pytest.mark.parametrize(
    ("entries", "settings"),
    [
        ((), {}),
        (("a=1", " b =x=y", "c="), {"a": "1", "b": "x=y", "c": ""}),
    ],
)
def test_settings_are_pairs(entries: tuple[str, ...], settings: dict[str, str]) -> None:
    assert pairs(entries, "-X") == settings


@pytest.mark.parametrize("entry", ["a", "=1", " =1"])
def test_a_setting_that_is_no_pair_is_named(entry: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        pairs(("a=1", entry), "--set")
    assert raised.value.message == f"--set {entry}: expected KEY=VALUE"


@click.group(cls=Commands)
def tools() -> None:
    """Tools."""


@tools.command()
@cluster
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("-n", "number")
@as_json
def show(bootstrap: str, client: tuple[str, ...], topics: tuple[str, ...], number: str | None, as_json: bool) -> None:
    """Show topics. And more.

    Never in a list.
    """
    click.echo(f"{bootstrap} {client} {topics} {number} {as_json}")


@tools.command()
@click.argument("group", shell_complete=complete_group)
@click.option("--topic", "topic")
def watch(group: str, topic: str | None) -> None:
    """Watch a group"""
    click.echo(f"{group} {topic}")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    tools.main(list(words), standalone_mode=False)
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("show a b", "('a', 'b') None False"),
        ("show --topic a", "('a',) None False"),
        ("show -n 1 --topic=a,b --json c", "('a', 'b', 'c') 1 True"),
        ("show c --topics a,,b -n 1", "('a', 'b', 'c') 1 False"),
        ("show --topic", "() None False"),
    ],
)
def test_kafkas_option_for_topics_is_an_argument(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "here")
    assert said(capsys, *words.split()) == f"here:9092 () {line}"


def test_an_option_that_a_tool_has_of_its_own_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("watch --group g --topic t", "watch --topic t --consumer-group=g", "watch g --topic t"):
        assert said(capsys, *words.split()) == "g t"
    with pytest.raises(click.NoSuchOption):
        said(capsys, "show", "--group", "g")


def test_a_list_of_commands_has_the_first_sentence_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "--help").splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[-2:]] == ["Show topics.", "Watch a group"]


# ---- clusters


@contextmanager
def opened(config: Path | None = None, **environment: str) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_PROFILE", "OTTLA_CONFIG"):
            patch.delenv(name, raising=False)
        if config is not None:
            patch.setenv("OTTLA_CONFIG", str(config))
        for name, value in environment.items():
            patch.setenv(name, value)
        yield patch


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.touch(0o600)
    path.write_text(
        'current = "prod"\n[profiles.prod]\nbootstrap.servers = "prod-1"\nclient.id = "me"\nsasl.password = "s"\n'
        '[profiles.test]\nbootstrap.servers = "test-1:7"\n[profiles.bare]\nclient.id = "bare"\n'
    )
    return path


@pytest.mark.parametrize(
    ("words", "environment", "servers"),
    [
        ("", {}, "prod-1:9092"),
        ("-b a", {}, "a:9092"),
        ("--profile test", {}, "test-1:7"),
        ("--profile bare", {}, "127.0.0.1:9092"),
        ("", {"OTTLA_PROFILE": "test"}, "test-1:7"),
        ("--profile prod", {"OTTLA_PROFILE": "test"}, "prod-1:9092"),
        ("", {"OTTLA_BOOTSTRAP_SERVERS": "env"}, "env:9092"),
        ("-b a", {"OTTLA_BOOTSTRAP_SERVERS": "env"}, "a:9092"),
        ("", {"OTTLA_BOOTSTRAP_SERVERS": "env", "OTTLA_PROFILE": "test"}, "test-1:7"),
        ("--profile bare", {"OTTLA_BOOTSTRAP_SERVERS": "env"}, "env:9092"),
    ],
)
def test_the_cluster_is_named_by_the_nearest(
    capsys: pytest.CaptureFixture[str], config: Path, words: str, environment: dict[str, str], servers: str
) -> None:
    with opened(config, **environment):
        assert said(capsys, "show", *words.split()) == f"{servers} () () None False"


def inside(body: Callable[[str, tuple[str, ...]], Any], *words: str) -> Any:
    """What the function returns in a tool that runs with these words; it gets the values of -b and -X."""
    found = []

    @click.command(cls=Tool)
    @cluster
    def tool(bootstrap: str, client: tuple[str, ...]) -> None:
        found.append(body(bootstrap, client))

    tools.add_command(tool, "tool")
    try:
        tools.main(["tool", *words], standalone_mode=False)
    finally:
        del tools.commands["tool"]
    return found[0]


def test_a_client_gets_the_profiles_settings_and_then_those_of_the_command_line(config: Path) -> None:
    prod = {"client.id": "me", "sasl.password": "s", "bootstrap.servers": "prod-1:9092"}
    with opened(config):
        assert inside(option.client_settings) == prod
        assert inside(option.client_settings, "-X", "acks=1", "-X", "client.id=you") == {
            **prod,
            "acks": "1",
            "client.id": "you",
        }
        # A cluster that is named by hand gets no secret of another.
        assert inside(option.client_settings, "-b", "a") == {"client.id": "ottla-cli", "bootstrap.servers": "a:9092"}
        assert inside(option.client_settings, "-b", "a", "--profile", "prod") == {**prod, "bootstrap.servers": "a:9092"}
    with opened(config, OTTLA_BOOTSTRAP_SERVERS="env"):
        assert inside(option.client_settings) == {"client.id": "ottla-cli", "bootstrap.servers": "env:9092"}


def test_a_second_cluster_is_a_profile_or_an_address_without_the_firsts_secrets(config: Path) -> None:
    with opened(config):
        assert inside(lambda *_: option.other_cluster("test")) == {
            "client.id": "ottla-cli",
            "bootstrap.servers": "test-1:7",
        }
        assert inside(lambda *_: option.other_cluster("bare")) == {
            "client.id": "bare",
            "bootstrap.servers": "127.0.0.1:9092",
        }
        assert inside(lambda *_: option.other_cluster("host")) == {
            "client.id": "ottla-cli",
            "bootstrap.servers": "host:9092",
        }


def test_a_file_of_profiles_is_one(config: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with opened():
        with pytest.raises(click.UsageError, match="--config a=b: expected a file; for settings of a topic use --set"):
            inside(lambda *_: option.opened_config(), "--config", "a=b")
        with pytest.raises(OttlaError, match="does not exist"):
            inside(lambda *_: option.opened_config(), "--config", str(missing))
        file = inside(lambda *_: option.opened_config(to_change=True), "--config", str(missing), "-b", "a")
        assert (file.path, file.profiles) == (missing, {})
        assert inside(lambda *_: option.opened_config(), "--config", str(config)).current == "prod"
    with opened(missing):
        with pytest.raises(OttlaError, match="does not exist"):
            inside(lambda *_: option.opened_config())
        assert inside(lambda *_: option.opened_config(to_change=True), "-b", "a").profiles == {}


def test_a_secret_is_asked_for_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(side_effect=["one", "two"])
    monkeypatch.setattr(click, "prompt", asked)
    with opened():
        assert inside(lambda *_: [option.prompt_once(name) for name in "aba"], "-b", "a") == ["one", "two", "one"]
    assert asked.call_args_list == [call("a", hide_input=True, err=True), call("b", hide_input=True, err=True)]


# ---- errors and completion


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The admin client that every tool gets."""
    client = Mock()
    client.list_topics.return_value = [SimpleNamespace(name=name) for name in ("flights", "flowers", "orders")]
    client.list_groups.return_value = [SimpleNamespace(id=name) for name in ("readers", "writers")]
    made = Mock(return_value=Mock(__enter__=lambda _: client, __exit__=lambda *_: None))
    monkeypatch.setattr(clients, "Admin", made)
    monkeypatch.setattr(option, "reach", Mock())
    client.made = made
    return client


def complete(argument: Callable[..., list[str]], incomplete: str, **params: Any) -> list[str]:
    context = click.Context(show)
    context.params = params
    parameter: Any = None
    return argument(context, parameter, incomplete)


def test_names_are_completed_from_the_cluster(admin: Mock) -> None:
    with opened(OTTLA_BOOTSTRAP_SERVERS="env"):
        assert complete(complete_topic, "fl") == ["flights", "flowers"]
        assert complete(complete_topic, "") == ["flights", "flowers", "orders"]
        assert complete(complete_group, "wr") == ["writers"]
        asked: Any = vars(option)["reach"]
        assert [each.args[0] for each in asked.call_args_list] == ["env:9092"] * 3
        complete(complete_topic, "", bootstrap="named:1", client=("acks=1",))
        assert asked.call_args.args[0] == "named:1"
        assert asked.call_args.args[1]["acks"] == "1"
        # The default is no name: the environment says more.
        complete(complete_topic, "", bootstrap="127.0.0.1:9092", client=None)
        assert asked.call_args.args[0] == "env:9092"
    admin.list_topics.side_effect = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    with opened(OTTLA_BOOTSTRAP_SERVERS="env"):
        assert complete(complete_topic, "fl") == []


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("topic flight", "there is no topic flight; did you mean flights?"),
        ("topic zzz", "there is no topic zzz; `ottla topics` lists the topics"),
        ("topic x has no partition 7", None),
        ("x", None),
    ],
)
def test_a_topic_that_is_not_there_gets_the_nearest(admin: Mock, message: str, told: str | None) -> None:
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def ask(error: KafkaError) -> None:
        with option.admin_of({"bootstrap.servers": "a:1"}):
            raise error

    with pytest.raises((OttlaError, KafkaError)) as raised:
        ask(error)
    assert str(raised.value) == told if told else raised.value is error
    other = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "topic flight")
    with pytest.raises(KafkaError) as kept:
        ask(other)
    assert kept.value is other
    admin.list_topics.return_value = []
    if told:
        with pytest.raises(OttlaError, match="; the cluster has no topics"):
            ask(error)


# ---- questions


@pytest.mark.parametrize(
    ("answer", "goes_on", "err"),
    [(True, True, ""), (False, False, "nothing was changed\n"), (click.Abort(), False, "\nnothing was changed\n")],
)
def test_a_question_is_asked_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any, goes_on: bool, err: str
) -> None:
    confirm = Mock(side_effect=[answer])
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    if goes_on:
        option.confirm("delete \x1b?", yes=False)
    else:
        with pytest.raises(click.Abort):
            option.confirm("delete \x1b?", yes=False)
    assert confirm.call_args_list == [call("delete \\x1b?", err=True)]
    assert capsys.readouterr() == ("", err)


def test_a_question_without_a_terminal_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    option.confirm("delete?", yes=True)
    with pytest.raises(click.UsageError) as raised:
        option.confirm("delete?", yes=False)
    assert raised.value.message == "delete? There is no terminal to ask on; add -y to answer yes"
