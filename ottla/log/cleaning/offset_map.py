"""The cleaner's map from key to the key's latest offset in the dirty section.

Rules:
- The map holds at most `keys_max` keys plus those of one batch. Keys that do not fit are cleaned next time.
- A key of up to 16 bytes is stored as it is, a longer one as a hash of 16 bytes. Keys with the same hash would count as
  one, which only becomes likely with 2^64 keys in a topic.
"""

from hashlib import blake2b

_DIGEST_BYTES = 16
#: The memory of an entry, rounded up: 173 to 195 bytes measured with CPython 3.11 and 16-byte keys.
KEY_BYTES = 200


def keys_of_buffer(buffer_bytes: int, load_factor: float) -> int:
    """The keys that fit into a `log.cleaner.dedupe.buffer.size` filled up to `load_factor`."""
    return max(1, int(buffer_bytes * load_factor) // KEY_BYTES)


class OffsetMap:
    """The map. A job creates it and fills it once."""

    __slots__ = ("_offsets", "keys_max", "latest_offset")

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.keys_max = keys_max
        #: Every record up to this offset is in the map.
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        """Record that `key` has a record at `offset`; offsets rise from call to call."""
        self._offsets[key if len(key) <= _DIGEST_BYTES else _digest(key)] = offset

    def get(self, key: bytes) -> int:
        """The latest offset of the key, or -1."""
        return self._offsets.get(key if len(key) <= _DIGEST_BYTES else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
