"""The machine's clock."""

from time import monotonic_ns, time_ns


class HostClock:
    """Wall and monotonic time of this machine, in whole milliseconds."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000
