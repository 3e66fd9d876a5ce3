"""How many clients of a listener have signed in, and how many have not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Authentications:
    """Counts since the start: by TLS handshake, or by SASL where a listener has it."""

    successful: int = 0
    failed: int = 0
    #: Sessions that were renewed, or should have been (KIP-368).
    successful_renewals: int = 0
    failed_renewals: int = 0
    #: Connections that were closed because they sent a request after the end of their session.
    expired: int = 0
