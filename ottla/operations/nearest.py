"""A suggestion for a misspelled name in an error message."""

from __future__ import annotations

from collections.abc import Sequence


def nearest(name: str, names: Sequence[str], what: str = "") -> str:
    """Return what follows "there is no topic NAME": the closest existing name.

    Without a close name, `what` (topic, group) makes a hint at the command that lists the names.
    """
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    if not what:
        return ""
    return f"; `ottla {what}s` lists the {what}s" if names else f"; the cluster has no {what}s"
