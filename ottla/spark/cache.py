"""Where fetched jars and class archives are kept: `$XDG_CACHE_HOME/ottla`, or `~/.cache/ottla`.

Everything below it can be deleted at any time; it is brought or made again. What is published there appears whole or
not at all: it is made beside its place and renamed into it, so that two processes that start at once do no harm.
"""

import os
from pathlib import Path


def directory(*names: str) -> Path:
    """The directory of these names below the cache, made when it is not there."""
    root = os.environ.get("XDG_CACHE_HOME")
    path = Path(root if root and os.path.isabs(root) else Path.home() / ".cache").joinpath("ottla", *names)
    path.mkdir(parents=True, exist_ok=True)
    return path
