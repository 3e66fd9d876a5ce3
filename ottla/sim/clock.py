"""A clock that only moves when told to."""


class SimClock:
    """Time under a test's control. Wall and monotonic time move together; `jump` moves the wall clock alone."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = 0
        #: The wall clock minus the monotonic time.
        self._wall_ms = now_ms

    def now_ms(self) -> int:
        return self._wall_ms + self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move time forward."""
        if ms < 0:
            raise ValueError("time does not go back; the wall clock may `jump`")
        self._now_ms += ms

    def jump(self, ms: int) -> None:
        """Step the wall clock, forward or back."""
        self._wall_ms += ms
