"""Ids, secrets and times that a user copies from a table: unbroken on a terminal of any width."""

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli import screen
from ottla.cli.ottla import quorum, token
from ottla.cli.screen import Column
from ottla.client.admin.credential import DelegationToken
from ottla.client.admin.result import QuorumDescription, QuorumReplica
from ottla.kernel.ids import Uuid, uuid_text
from tests.cli.test_screen import shown as shown
from tests.cli.test_terminal_tables import asked as asked
from tests.cli.tool import Said

ID = Uuid(bytes(range(16)))
HMAC = bytes(range(64))
AT_MS = 1_700_000_000_000
TIME = "2023-11-14T22:13:20.000Z"
WIDTHS = [30, 50, 70, 80, 90, 110, 130, 200]


def lines(said: Said) -> list[str]:
    assert said.code == 0, said.err
    return [re.sub(r"<[/\w]+>", "", line).rstrip() for line in said.out.splitlines()]


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_directory_id_of_a_voter_is_in_one_line(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    replicas = [QuorumReplica(number, ID, 900, AT_MS, AT_MS) for number in (1, 2)]
    endpoints = {number: (f"CONTROLLER://controller-{number}.example.org:9093",) for number in (1, 2)}
    client = Mock()
    client.describe_quorum.return_value = QuorumDescription(2, 7, 1200, tuple(replicas), (), endpoints)
    found = lines(asked(quorum, client, "quorum"))
    assert sum(uuid_text(ID) in line for line in found) == 2
    assert max(map(len, found)) <= max(columns, len("directory id  ") + len(uuid_text(ID)))


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_token_is_shown_with_what_must_be_copied_unbroken(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = uuid_text(ID)
    made = DelegationToken(name, HMAC, "User:ann", "User:eve", AT_MS, AT_MS, AT_MS, ())
    client = Mock()
    client.create_delegation_token.return_value = made
    client.describe_delegation_tokens.return_value = [made]
    created, described = (lines(asked(token, client, "tokens", word)) for word in ("create", "describe"))
    for found, whole in ((created, [name, b64encode(HMAC).decode(), TIME]), (described, [name, TIME])):
        for text in whole:
            assert any(re.search(rf"(^|  ){re.escape(text)}($|  )", line) for line in found), (text, found)


def test_a_row_as_a_list_aligns_its_cells_and_leaves_a_long_whole_one_to_the_terminal(
    shown: Callable[..., tuple[str, str]],
) -> None:
    columns = [Column("id", "name", whole=True), Column("a long title"), Column("n", numeric=True), Column("none")]
    rows: list[list[Any]] = [["x" * 40, "some words that do not fit here", 12345, None], ["y" * 6, "few", 1, "[b]"]]
    out, _ = shown(lambda: screen.table(columns, rows), 30)
    assert out.split("\n") == [
        f"id            {'x' * 40}",
        "a long title  some words that",
        "              do not fit here",
        "n             12,345",
        "none          -",
        "",
        f"id            {'y' * 6}",
        "a long title  few",
        "n             1",
        "none          [b]",
        "",
    ]
