"""`ottla tokens`: delegation tokens are made, seen without their secret, renewed and ended."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, AuthenticationFailed
from tests.broker.sasl_scene import PASSWORD, plaintext, secured
from tests.broker.test_delegation_token import TOKENS
from tests.cli.tool import Said, Tool


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=TOKENS) as node:
        yield node


class Ann:
    """The tool as a user who has authenticated."""

    def __init__(self, tool: Tool, address: str) -> None:
        self._tool, self._address = tool, address

    def __call__(self, *arguments: str) -> Said:
        about = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
        options = [part for key, value in about.items() for part in ("-X", f"{key}={value}")]
        command = [*arguments, "-b", self._address, *options, "-X", "sasl.password=${env:ANNS}"]
        return self._tool("tokens", *command)


@pytest.fixture
def ann(node: ottla.Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ann:
    monkeypatch.setenv("ANNS", PASSWORD)
    return Ann(Tool(secured(node), monkeypatch, capfd), secured(node))


def _signs_in(node: ottla.Node, token: str, hmac: str) -> bool:
    settings = {"bootstrap.servers": secured(node), "security.protocol": "SASL_PLAINTEXT"}
    line = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{token}" password="{hmac}"'
    settings |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f'{line} tokenauth="true";'}
    try:
        with Admin(settings) as admin:
            return bool(admin.describe_cluster().nodes)
    except AuthenticationFailed:
        return False


def test_a_token_is_made_renewed_and_ended_and_its_hmac_shown_once(node: ottla.Node, ann: Ann, tmp_path: Path) -> None:
    made = ann("create", "--renewer", "bob", "--max-life-time", "2h", "--json").json
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:ann", "User:ann", ["User:bob"])
    assert _signs_in(node, made["id"], made["hmac"])
    shown = ann("--json")
    assert [each["id"] for each in shown.json] == [made["id"]]
    assert set(shown.json[0]) == {"id", "owner", "requester", "renewers", "issued", "expires", "ends"}
    for said in (shown, ann(), ann("describe", "ann"), ann("describe", "--owner-principal", "User:ann")):
        assert made["id"] in said.out
        assert made["hmac"] not in said.out + said.err
    assert ann("describe", "carl", "--json").json == []

    (tmp_path / "hmac").write_text(made["hmac"] + "\n")
    by_file = f"--hmac=${{file:{tmp_path / 'hmac'}}}"
    renewed = ann("renew", by_file, "--renew-time-period", "600000", "--json").json
    assert renewed["expires"] < ann("renew", made["id"], "--period", "90min", "--json").json["expires"] <= made["ends"]
    ended = ann("expire", made["id"])
    assert (ended.code, made["hmac"] in ended.out + ended.err) == (0, False)
    assert not _signs_in(node, made["id"], made["hmac"])
    assert ann("expire", by_file, "--expiry-time-period", "-1").code == 1


def test_the_table_of_a_new_token_has_its_hmac(ann: Ann) -> None:
    row = ann("create", "--owner-principal", "User:ann", "--max-life-time-period", "-1").rows[0]
    assert len(b64decode(row[1], validate=True)) == 64
    assert ann("expire", row[0]).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("renew",), 2, "expected either the ID of a token"),
        (("renew", "x", "--hmac", "${env:H}"), 2, "or --hmac"),
        (("expire", "--hmac", "c2VjcmV0"), 2, "every user of this machine can see"),
        (("expire", "--hmac", "${env:ANNS}"), 1, "is not an HMAC"),
        (("renew", "no-such"), 1, "there is no token no-such that this user may see"),
        (("create", "--max-life-time", "soon"), 2, "soon: expected a time span"),
        (("create", "--owner", "User:"), 2, "expected User:NAME"),
    ],
)
def test_a_mistake_is_told(ann: Ann, arguments: tuple[str, ...], code: int, words: str) -> None:
    said = ann(*arguments)
    assert (said.code, words in said.err) == (code, True), said
    assert PASSWORD not in said.err


def test_a_client_that_has_not_signed_in_is_told_how(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = Tool(plaintext(node), monkeypatch, capfd)("tokens", "create")
    assert (said.code, "authenticated" in said.err) == (1, True)
