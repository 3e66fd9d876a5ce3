"""The name that was probably meant, for a message about one that is not there."""

from __future__ import annotations

from collections.abc import Sequence


def nearest(name: str, names: Sequence[str], what: str = "") -> str:
    """What follows "there is no topic NAME": the nearest that is there.

    Without a near one, `what` (topic, group) tells how those that are there can be listed.
    """
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    if not what:
        return ""
    return f"; `ottla {what}s` lists those that are there" if names else ", nor any other"
