"""Delegation tokens and SCRAM at the levels of `metadata.version` below and from which Apache Kafka has them."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata.feature import METADATA_VERSION_LEAST, METADATA_VERSIONS, SCRAM_FROM, TOKENS_FROM
from ottla.security.scram import scram
from tests.interop import server as servers
from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_delegation_token import DelegatingServer, of_user, signed_in
from tests.interop.oracle.test_switch import update
from tests.interop.server import Server

pytestmark = pytest.mark.interop

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
#: Raised to in turn: from the lowest, just below and at the level of each.
_LEVELS = (8, SCRAM_FROM - 1, SCRAM_FROM, TOKENS_FROM - 1, TOKENS_FROM)
_KEY = "delegation.token.secret.key"
_HOUR_MS = 3_600_000
#: By which "apple" signs in.
_PASSWORD = "for the walk"


class OldServer(DelegatingServer):
    """One whose voters are fixed, as at every level below 3.9."""

    has_key = True

    def _properties(self, controller_port: int) -> str:
        text = super()._properties(controller_port).replace("controller.quorum.bootstrap.servers=", "#")
        if not self.has_key:
            text = text.replace(f"{_KEY}=", "#")
        return f"{text}controller.quorum.voters=1@127.0.0.1:{controller_port}\n"


def old(kind: servers.Kind, directory: Path, level: int, *more: str) -> OldServer:
    """A server that is formatted at a level."""
    command = (*(each for each in kind.format if each != "--standalone"), *more)
    command = (*command, "--release-version", METADATA_VERSIONS[level].text)
    return OldServer(replace(kind, format=command), directory, servers.HELD)


@contextmanager
def pair(subject: Server, directory: Path, *, has_key: bool) -> Iterator[Oracle]:
    made = [
        old(kind, directory / kind.name, METADATA_VERSION_LEAST)
        for kind in (servers.apache(), servers.kind(subject.name))
    ]
    try:
        for one in made:
            one.has_key = has_key
            one.start()
        oracle = Oracle(*made)
        yield oracle
        oracle.close()
    finally:
        for one in made:
            one.stop()


def look(side: Side) -> None:
    """Credentials and tokens: made, described, changed, used and taken away."""
    change_users(side)
    side.settle()
    side.ask("DescribeUserScramCredentials", 0, users=[])
    side.ask("DescribeUserScramCredentials", 0, users=[{"name": "apple"}])
    signed_in(side, scram("SCRAM-SHA-256", "apple", _PASSWORD, "nonce"), "SCRAM-SHA-256")
    deletions = [{"name": each, "mechanism": 1} for each in ("apple", "absent")]
    side.ask("AlterUserScramCredentials", 0, upsertions=[], deletions=deletions)
    ann = of_user(side, "ann")
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    token = ann.create(renewers=renewers, max_lifetime_ms=-1)
    for version in (1, 2):
        ann.ask("CreateDelegationToken", version)
    ann.ask("CreateDelegationToken", 3, renewers=[{"principal_type": "Group", "principal_name": "x"}])
    ann.ask("CreateDelegationToken", 3, owner_principal_type="User", owner_principal_name="cid")
    for version in (1, 2, 3):
        ann.ask("DescribeDelegationToken", version, owners=None)
    ann.ask("DescribeDelegationToken", 3, owners=[])
    ann.ask("DescribeDelegationToken", 3, owners=[{"principal_type": "User", "principal_name": "cid"}])
    for hmac in (bytes(token.hmac), b"x", b""):
        for version in (1, 2):
            ann.ask("RenewDelegationToken", version, hmac=hmac, renew_period_ms=_HOUR_MS)
            ann.ask("ExpireDelegationToken", version, hmac=hmac, expiry_time_period_ms=_HOUR_MS // 4)
    ann.ask("ExpireDelegationToken", 2, hmac=bytes(token.hmac), expiry_time_period_ms=-1)


def change_users(side: Side) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", _PASSWORD.encode(), b"salt", 4096)
    good: dict[str, Any] = {"name": "apple", "mechanism": 1, "iterations": 4096, "salt": b"salt"}
    good["salted_password"] = salted
    for wrong in ({}, {"mechanism": 9}, {"iterations": 1}, {"name": ""}):
        side.ask("AlterUserScramCredentials", 0, upsertions=[good | wrong], deletions=[])
    side.ask("AlterUserScramCredentials", 0, upsertions=[good, good], deletions=[])


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no key"])
def test_tokens_and_credentials_come_with_their_levels(subject: Server, tmp_path: Path, has_key: bool) -> None:
    def script(side: Side) -> None:
        side.settle()
        look(side)
        before = METADATA_VERSION_LEAST
        for level in _LEVELS:
            update(side, "metadata.version", level, _UPGRADE)
            side.settle()
            side.note("level", level)
            look(side)
            for kind in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
                for lower in sorted({before, level - 1, METADATA_VERSION_LEAST - 1}):
                    update(side, "metadata.version", lower, kind, validate_only=True)
            before = level

    with pair(subject, tmp_path, has_key=has_key) as oracle:
        oracle.compare(script)


@pytest.mark.parametrize("level", [METADATA_VERSION_LEAST, SCRAM_FROM - 1, SCRAM_FROM])
def test_a_credential_at_format_needs_its_level(subject: Server, tmp_path: Path, level: int) -> None:
    said = []
    for kind in (servers.apache(), servers.kind(subject.name)):
        user = f"SCRAM-SHA-256=[name=apple,password={_PASSWORD}]"
        one = old(kind, tmp_path / kind.name, level, "--add-scram", user)
        one.directory.mkdir()
        (one.port,), controller = servers.free_ports(1), servers.free_ports(1)[0]
        one.properties.write_text(one._properties(controller))
        done = subprocess.run(one.kind.format_command(one.properties), capture_output=True, text=True, timeout=120)
        said.append((done.returncode, done.stderr.strip()))
    (their_code, theirs), (our_code, ours) = said
    assert (our_code, our_code == 0) == (their_code, level >= SCRAM_FROM)
    assert our_code == 0 or theirs in ours
