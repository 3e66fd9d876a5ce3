"""CRC-32C, the checksum of record batches and log snapshots: `crc32c(data, value=0)` of the package `crc32c`.

Not obvious: the extension module is loaded directly, because the package's `__init__` imports importlib.metadata, email
and argparse to find its version, which takes 15 of the 160 ms that a node needs to start.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any


def _load() -> Any:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        # A version of the package with another layout.
        import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _load().crc32c

__all__ = ["crc32c"]
