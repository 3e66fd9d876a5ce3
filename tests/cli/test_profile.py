"""Profiles: names for clusters, secrets out of sight, and the names that Kafka's hands type."""

from pathlib import Path

import pytest

from ottla.cli.config_file import ConfigFile, is_secret, resolved
from ottla.client.settings.reference import CLIENTS
from ottla.kernel.error import OttlaError
from tests.cli.tool import Tool, in_process


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch(0o600)
    return tmp_path / "config.toml"


@pytest.fixture
def bare(path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool) -> Tool:
    """A tool that no environment tells where the cluster is."""
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    return tool


def test_a_profile_is_made_used_and_shown(topic: str, bare: Tool, bootstrap: str) -> None:
    assert bare("profile", "set", "here", f"bootstrap.servers={bootstrap}").code == 0
    assert bare("topics", "list", "--profile", "here").code == 0
    assert bare("profile", "use", "here").code == 0
    assert topic in [row[0] for row in bare("topics").rows]
    assert bare("profile", "--json").json == [{"profile": "here", "bootstrap.servers": bootstrap, "current": True}]
    assert bare("profile", "show").rows == [["bootstrap.servers", bootstrap]]
    wrong = bare("topics", "--profile", "her")
    assert (wrong.code, "did you mean here?" in wrong.err) == (1, True)


def test_the_first_profile_makes_the_file_that_the_environment_names(bare: Tool, bootstrap: str, path: Path) -> None:
    path.unlink()
    assert "does not exist" in bare("topics").err
    assert bare("profile", "set", "here", f"bootstrap.servers={bootstrap}").code == 0
    assert bare("topics", "--profile", "here").code == 0


def test_a_cluster_named_by_hand_gets_nothing_of_the_current_profile(bare: Tool, bootstrap: str, path: Path) -> None:
    path.write_text('current = "prod"\n[profiles.prod]\nbootstrap.servers = "127.0.0.1:1"\nsecurity.protocol = "SSL"\n')
    assert "127.0.0.1:1" in bare("topics").err
    assert bare("topics", "-b", bootstrap).code == 0
    assert bare("-b", bootstrap, "topics").code == 0
    named = bare("topics", "-b", bootstrap, "--profile", "prod")
    assert "does not speak TLS" in named.err


def test_a_secret_is_asked_for_hidden_and_kept_from_others(bare: Tool, path: Path) -> None:
    words = ("profile", "set", "prod", "bootstrap.servers=127.0.0.1:1", "sasl.password")
    said = in_process(*words, stdin=b"s3cret\n")
    assert said.code == 0, said.err
    assert "s3cret" not in said.out + said.err + bare("profile", "show", "prod").out
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    told = bare("topics", "--profile", "prod")
    assert (told.code, "chmod 600" in told.err) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "-X", "sasl.password=x"),
        ("topics", "-X", "sasl_password=x"),
        ("profile", "set", "p", "ssl.key.password=x"),
        ("profile", "set", "p", "ssl.key.password =x"),
        ("profile", "set", "p", "sasl.oauthbearer.assertion.private.key.passphrase=x"),
    ],
)
def test_a_secret_on_the_command_line_is_refused(tool: Tool, path: Path, words: tuple[str, ...]) -> None:
    said = tool(*words)
    assert said.code == 1
    assert "every user of this machine can see" in said.err


def test_a_setting_that_no_client_has_is_refused_but_can_be_removed(tool: Tool, path: Path) -> None:
    said = tool("profile", "set", "prod", "client.id=me", "security.protocoll=SSL")
    assert (said.code, said.err) == (
        1,
        "ottla: there is no client setting security.protocoll; did you mean security.protocol?\n",
    )
    assert path.read_text() == ""
    path.write_text('[profiles.prod]\nnonsense = "1"\n')
    assert tool("profile", "set", "prod", "client_id=me", "nonsense=").code == 0
    assert ConfigFile(path).profiles["prod"] == {"client_id": "me"}


def test_every_secret_of_a_client_is_known() -> None:
    certificates = {"ssl.truststore.certificates", "ssl.keystore.certificate.chain"}
    declared = {each.name for kind in CLIENTS.values() for each in kind.declared.values() if each.sensitive}
    assert {name for name in declared if not is_secret(name)} == certificates, "which are public"


def test_secrets_come_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from a file\n")
    given = {"a": "${env:PW}", "b": f"${{file:{tmp_path}/pw}}", "c": "${prompt}", "d": "plain"}
    found = resolved(given, lambda name: f"asked for {name}", {"PW": "from env"})
    assert found == {"a": "from env", "b": "from a file", "c": "asked for c", "d": "plain"}
    with pytest.raises(OttlaError, match="the variable NONE is not set"):
        resolved({"a": "${env:NONE}"}, None, {})


def test_what_people_wrote_beside_the_settings_stays(path: Path) -> None:
    path.write_text('# mine\n[profiles.a]\nlinger.ms = 5  # fast\n\n[profiles.b]\n"client.id" = "b"\n')
    ConfigFile(path).change("a", {"acks": "1", "linger.ms": None})
    ConfigFile(path).change("c d", {"client.id": 'quo"te'})
    ConfigFile(path).use("b")
    text = path.read_text()
    assert "# mine\n" in text
    file = ConfigFile(path)
    assert file.profiles == {"a": {"acks": "1"}, "b": {"client.id": "b"}, "c d": {"client.id": 'quo"te'}}
    assert file.current == "b"


@pytest.mark.parametrize(
    "text", ["[profiles.a]\n'linger.ms' = 5\n", "[ profiles.a ]\nacks = 1\n", 'profiles = { a = { acks = "1" } }\n']
)
def test_a_file_of_another_form_is_left_as_it_is(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(OttlaError, match=r"this tool cannot change .*; edit it by hand"):
        ConfigFile(path).change("a", {"linger.ms": None, "acks": "all"} if "acks" in text else {"linger.ms": None})
    assert path.read_text() == text


@pytest.mark.parametrize("text", ["[", "nonsense = 1", "profiles = 3", 'current = "x"', "[profiles.a]\nx = [1]"])
def test_a_broken_file_is_one_line(bare: Tool, path: Path, text: str) -> None:
    path.write_text(text)
    said = bare("topics")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert str(path) in said.err
    assert bare("--help").code == 0


def test_kafkas_names_of_options_do(tool: Tool, bootstrap: str, topic: str) -> None:
    at = ("--bootstrap-server", bootstrap)
    made = tool("topics", "create", "--topic", f"{topic}_k", "--partitions", "1", "--replication-factor", "1", *at)
    assert made.code == 0, made.err
    assert tool("topics", "describe", f"--topic={topic}_k", *at).code == 0
    assert in_process("produce", "--topic", topic, *at, stdin=b"1\n").code == 0
    assert in_process("consume", "--topic", topic, "--from-beginning", "-e", *at).out == "1\n"
    assert tool("groups", "describe", "--group", f"{topic}_none").err.startswith("ottla: ")


def test_a_host_without_a_port_has_kafkas(tool: Tool) -> None:
    said = tool("topics", "-b", "127.0.0.1,[::1]", "-X", "security.protocol=SSL")
    assert "127.0.0.1:9092" in said.err
    assert "[::1]:9092" in said.err


def test_the_help_of_b_says_where_it_looks(tool: Tool) -> None:
    assert "OTTLA_BOOTSTRAP_SERVERS" in tool("topics", "--help").out
    assert "OTTLA_PROFILE" in tool("consume", "--help").out


def test_a_file_that_cannot_be_read_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    for name, why in (("none", "No such file or directory"), ("", "Is a directory"), ("latin", "'utf-8' codec can't")):
        place = f"{tmp_path}/{name}".rstrip("/")
        with pytest.raises(OttlaError) as raised:
            resolved({"sasl.password": f"${{file:{place}}}"}, None, {})
        told = f"sasl.password refers to ${{file:{place}}}, which cannot be read: {why}"
        assert str(raised.value).startswith(told)
        if name != "none":
            with pytest.raises(OttlaError) as raised:
                ConfigFile(place)
            assert str(raised.value).startswith(f"cannot read {place}: {why}")


def test_values_that_are_no_text_are_settings_too(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[profiles.a]\nlinger.ms = 5\nenable.idempotence = false\n")
    assert ConfigFile(path).profile("a") == {"linger.ms": "5", "enable.idempotence": "false"}
    path.write_text("[profiles.a]\nlinger.ms = [5]\n")
    with pytest.raises(OttlaError, match=r"linger\.ms must be text or a number"):
        ConfigFile(path).profile("a")


def test_the_current_profile_is_named_at_the_head_of_the_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('# mine\n[profiles.a]\nacks = "1"\n[profiles.b]\n')
    ConfigFile(path).use("a")
    assert ConfigFile(path).current == "a"
    ConfigFile(path).use("b")
    assert (ConfigFile(path).current, path.read_text().count("current")) == ("b", 1)
    assert ConfigFile(path).profile("a") == {"acks": "1"}
    path.write_text('current = "a"\n[profiles.a]\nacks = "1"')
    ConfigFile(path).change("b", {"acks": "all"})
    assert ConfigFile(path).profile("b") == {"acks": "all"}
