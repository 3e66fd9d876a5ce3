"""A clock that stands still until it is told to move."""


class SimClock:
    """Time as a test or a simulation says. Wall and monotonic time move together; `jump` moves the wall alone."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = 0
        #: What the wall shows beyond the monotonic time.
        self._wall_ms = now_ms

    def now_ms(self) -> int:
        return self._wall_ms + self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError("time does not go back; the wall clock may `jump`")
        self._now_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock by this much, forward or back."""
        self._wall_ms += ms
