"""Passwords of users who sign in by SCRAM (KIP-554): set for every way of hashing, and taken away.

    set_password(admin, "alice", "secret")
    plan_deletion(admin, "alice").commit(admin)

`admin.describe_scram_credentials()` lists who has one. A password never leaves this machine: the client hashes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, ScramMechanism


def set_password(
    ask: Admin, user: str, password: str, mechanisms: Sequence[ScramMechanism] = (), *, iterations: int = 4_096
) -> list[ScramMechanism]:
    """Give a new user or one that is there a password. Returns the mechanisms that have it now: all if none are named.

    A broker takes one mechanism of a user at a time: after a KafkaError those before it have the new password.
    """
    from ottla.client import ScramCredential, ScramMechanism

    chosen = list(mechanisms or ScramMechanism)
    for mechanism in chosen:
        ask.alter_scram_credentials([ScramCredential(user, mechanism, password, iterations)]).check()
    return chosen


@dataclass(frozen=True, slots=True)
class PasswordDeletion:
    """The password of a user that goes, of these mechanisms."""

    user: str
    mechanisms: list[ScramMechanism]

    def commit(self, ask: Admin) -> None:
        """Do it, one mechanism after the other. Raises the first KafkaError."""
        from ottla.client import ScramDeletion

        for mechanism in self.mechanisms:
            ask.alter_scram_credentials([ScramDeletion(self.user, mechanism)]).check()


def plan_deletion(ask: Admin, user: str, mechanisms: Collection[ScramMechanism] = ()) -> PasswordDeletion:
    """The deletion of a user's password, of all mechanisms that have one or of those named.

    OttlaError: the user has no password, or none for a mechanism that is named.
    """
    known = ask.describe_scram_credentials().succeeded.get(user, {})
    missing = [each for each in mechanisms if each not in known]
    if missing or not known:
        of = f" for {name_of(missing[0])}" if missing else ""
        raise OttlaError(f"{user} has no password{of}; `ottla users` lists who has")
    return PasswordDeletion(user, sorted(mechanisms or known))


def name_of(mechanism: ScramMechanism) -> str:
    """As SASL names it: SCRAM-SHA-256."""
    return mechanism.name.replace("_", "-")
