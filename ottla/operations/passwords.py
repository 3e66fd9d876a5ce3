"""SCRAM passwords of users (KIP-554): set them for every mechanism, and delete them.

    set_password(admin, "alice", "secret")
    plan_deletion(admin, "alice").commit(admin)

`admin.describe_scram_credentials()` lists users with one. A password never leaves this machine: the client hashes it.
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
    """Set the password of a new or existing user. Returns the mechanisms that have it now: all if none are named.

    A broker takes one mechanism of a user at a time: after a KafkaError, the earlier ones have the new password.
    """
    from ottla.client import ScramCredential, ScramMechanism

    chosen = list(mechanisms or ScramMechanism)
    for mechanism in chosen:
        ask.alter_scram_credentials([ScramCredential(user, mechanism, password, iterations)]).check()
    return chosen


@dataclass(frozen=True, slots=True)
class PasswordDeletion:
    """A planned deletion of a user's password for these mechanisms."""

    user: str
    mechanisms: list[ScramMechanism]

    def commit(self, ask: Admin) -> None:
        """Delete the password, one mechanism after the other. Raises the first KafkaError."""
        from ottla.client import ScramDeletion

        for mechanism in self.mechanisms:
            ask.alter_scram_credentials([ScramDeletion(self.user, mechanism)]).check()


def plan_deletion(ask: Admin, user: str, mechanisms: Collection[ScramMechanism] = ()) -> PasswordDeletion:
    """Plan the deletion of a user's password for the named mechanisms, or for all that have one.

    OttlaError: the user has no password, or none for a named mechanism.
    """
    known = ask.describe_scram_credentials().succeeded.get(user, {})
    missing = [mechanism for mechanism in mechanisms if mechanism not in known]
    if missing or not known:
        of = f" for {name_of(missing[0])}" if missing else ""
        raise OttlaError(f"{user} has no password{of}; `ottla users` lists the users who have one")
    return PasswordDeletion(user, sorted(mechanisms or known))


def name_of(mechanism: ScramMechanism) -> str:
    """Return the SASL name: SCRAM-SHA-256."""
    return mechanism.name.replace("_", "-")
