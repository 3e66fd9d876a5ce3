"""The cache of downloaded jars and class archives: `$XDG_CACHE_HOME/ottla`, or `~/.cache/ottla`.

Everything in it can be deleted at any time and is downloaded or made again. Files are written under another name and
renamed into place, so that they appear whole and two processes can start at once.
"""

import os
from pathlib import Path


def directory(*names: str) -> Path:
    """The directory with this path below the cache, created if it is missing."""
    root = os.environ.get("XDG_CACHE_HOME")
    path = Path(root if root and os.path.isabs(root) else Path.home() / ".cache").joinpath("ottla", *names)
    path.mkdir(parents=True, exist_ok=True)
    return path
