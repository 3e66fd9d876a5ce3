"""The settings of a command (-X, the profile) that each of its clients gets.

A command may have several clients: `consume` looks up offsets with an admin client and reads with a consumer.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["producer", "consumer", "share", "admin"]


def settings_of(kind: Kind, settings: dict[str, object]) -> dict[str, object]:
    """Return the settings that this kind of client has. OttlaError, with the nearest name, if no client has one."""
    from ottla.client.settings.reference import CLIENTS, explain

    own = CLIENTS[kind].declared
    chosen = {}
    for name, value in settings.items():
        if name.replace(".", "_") in own:
            chosen[name] = value
        else:
            explain(name)
    return chosen
