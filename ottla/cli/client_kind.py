"""Which of the settings of a command (-X, the profile) each of its clients gets.

A command has several clients: `consume` asks with an admin client where to begin and reads with a consumer.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["producer", "consumer", "share", "admin"]


def settings_of(kind: Kind, settings: dict[str, object]) -> dict[str, object]:
    """The settings that this kind of client has. OttlaError for one that no client has, with the nearest name."""
    from ottla.client.settings.reference import CLIENTS, explain

    own = CLIENTS[kind].declared
    found = {}
    for name, value in settings.items():
        if name.replace(".", "_") in own:
            found[name] = value
        else:
            explain(name)
    return found
