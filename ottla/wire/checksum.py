"""CRC-32C, as every record batch and log snapshot has it: `crc32c(data, value=0)` of the package of that name.

Not obvious: its extension module is loaded past the package's own `__init__`, which imports importlib.metadata, email
and argparse to learn its version: 15 of the 160 ms that a node takes to start.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any


def _load() -> Any:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        # Another version of the package, laid out in another way.
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
