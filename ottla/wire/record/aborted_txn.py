"""An entry of a transaction index (`.txnindex`): an int16 version (0), then 32 bytes. A schema since 4.4."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int64


@wire(versions="0", flexible="none")
class AbortedTxn:
    producer_id: Int64 = on("0+", default=0)
    first_offset: Int64 = on("0+", default=0)
    last_offset: Int64 = on("0+", default=0)
    last_stable_offset: Int64 = on("0+", default=0)
