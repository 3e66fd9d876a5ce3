"""Damaged golden bytes and random bytes for a decoder, in blocks: one seed, one decoder, one number give one block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time

from tests.broker.test_fuzz import peak_bytes

BLOCK_INPUTS = 250
#: What one input, of a few KiB at most, may cost: CPU of this process, and growth of its peak in a block.
SECONDS_MAX = 2.0
BYTES_MAX = 256 << 20
_SIZE_MAX = 8192
#: Numbers that lengths and counts are compared with, in the forms that formats have.
_NUMBERS = (
    *(
        number.to_bytes(size, "big", signed=True)
        for size in (1, 2, 4, 8)
        for number in (0, 1, -1, -2, (1 << 8 * size - 1) - 1, -(1 << 8 * size - 1))
    ),
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xfe\xff\xff\xff\x0f",
)


@dataclass(frozen=True)
class Decoder:
    """A decoder of bytes: examples of what it reads, and the errors that it declares."""

    name: str
    golden: Sequence[bytes]
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]


@dataclass(frozen=True)
class Failure:
    """An input that a decoder did not take as it declares."""

    decoder: str
    block: int
    data: bytes
    why: str

    def __str__(self) -> str:
        return f"{self.decoder}, block {self.block}: {self.why} for {self.data.hex()}"


def damaged(golden: Sequence[bytes], rng: Random) -> bytes:
    """One of `golden` with one to four damages, or now and then bytes that are only random."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(64))
    data = bytearray(rng.choice(golden))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 | 1 if at < len(data):
                data[at] = rng.getrandbits(8)
            case 2 if at < len(data):
                data[at] ^= 1 << rng.getrandbits(3)
            case 3:
                number = rng.choice(_NUMBERS)
                data[at : at + len(number)] = number
            case 4:
                del data[at : at + rng.choice((1, 2, 8, _SIZE_MAX))]
            case 5:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                other = rng.choice(golden)
                start = rng.randrange(len(other) + 1)
                data[at : at + rng.choice((0, 8))] = other[start : start + rng.choice((4, 32, 512))]
    return bytes(data[:_SIZE_MAX])


def block(decoder: Decoder, seed: int, number: int) -> Iterator[bytes]:
    """The inputs of a block."""
    rng = Random(f"{seed} {decoder.name} {number}")
    for _ in range(BLOCK_INPUTS):
        yield damaged(decoder.golden, rng)


def run_block(decoder: Decoder, seed: int, number: int, *, timed: bool) -> Failure | None:
    """The first failure of a block, if there is one. Time and memory are looked at if `timed`."""
    decode, errors = decoder.decode, decoder.errors
    before = peak_bytes()
    data = b""
    for data in block(decoder, seed, number):
        began = process_time() if timed else 0.0
        try:
            decode(data)
        except errors:
            pass
        except BaseException as error:  # an extension's panic is a BaseException
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return Failure(decoder.name, number, data, f"{type(error).__name__}: {error}")
        if timed and process_time() - began > SECONDS_MAX:
            return Failure(decoder.name, number, data, f"more than {SECONDS_MAX} s of CPU")
    if timed and peak_bytes() - before > BYTES_MAX:
        return Failure(decoder.name, number, data, f"the block took more than {BYTES_MAX >> 20} MiB")
    return None
