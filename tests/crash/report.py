"""What a run of kills has done and found: counted, added up over rounds, kept as a line of JSON, said in lines."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from tests.crash.check import Tally

#: What a start is to take at most.
START_MS = 2000


class Start(NamedTuple):
    """From the start of the process to the first answer, and what its threads had computed by then."""

    wall_ms: float
    cpu_ms: float


@dataclass
class Report:
    """What happened, and what was found right."""

    kills: int = 0
    kills_in_recovery: int = 0
    stops: int = 0
    pauses: int = 0
    #: How often everything was checked.
    checks: int = 0
    #: Members of groups that lost their connections for good by a fault of their client, and had a fresh one instead.
    replaced: int = 0
    #: Members that did not come to the end for a reason that nobody has told yet. Their evidence is kept.
    unexplained: int = 0
    tally: Tally = field(default_factory=Tally)
    #: Processes executed as a user does it, after a kill and after a clean stop, and those that were forked.
    killed: list[Start] = field(default_factory=list)
    stopped: list[Start] = field(default_factory=list)
    forked: list[Start] = field(default_factory=list)
    #: Where the time went.
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        for each in fields(self):
            mine, others = getattr(self, each.name), getattr(other, each.name)
            match mine:
                case Tally():
                    mine.add(others)
                case dict():
                    for name in others:
                        mine[name] = mine.get(name, 0.0) + others[name]
                case _:
                    setattr(self, each.name, mine + others)

    def counts(self) -> dict[str, int]:
        """What was done and found right, in numbers."""
        own = ("kills", "kills_in_recovery", "stops", "pauses", "checks", "replaced", "unexplained")
        of_tally = ("acknowledged", "transactions", "commits", "served")
        return {name: getattr(self, name) for name in own} | {name: getattr(self.tally, name) for name in of_tally}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Report:
        """What `as_dict` made, perhaps by way of JSON."""
        starts = {name: [Start(*each) for each in data[name]] for name in ("killed", "stopped", "forked")}
        return cls(**{**data, **starts, "tally": Tally(**data["tally"])})

    def lines(self) -> list[str]:
        tally, seconds = self.tally, self.seconds
        each = ", ".join(f"{name} {seconds[name] / max(1, self.kills):.3f} s" for name in seconds)
        return [
            (
                f"{self.kills} kills ({self.kills_in_recovery} of them in recovery), {self.stops} clean stops, "
                f"{self.pauses} pauses; everything was checked {self.checks} times"
            ),
            (
                f"{tally.acknowledged} acknowledged records, {tally.transactions} transactions, {tally.served} records "
                f"served on the way, {tally.commits} commits: all as promised"
            ),
            f"members replaced: {self.replaced} by a fault of their client, {self.unexplained} unexplained",
            f"executed after a kill: {_spread(self.killed)}",
            f"executed after a clean stop: {_spread(self.stopped)}",
            f"forked: {_spread(self.forked)}",
            f"a kill took {sum(seconds.values()) / max(1, self.kills):.3f} s: {each}",
        ]


def _spread(starts: list[Start]) -> str:
    if not starts:
        return "none"
    return f"{len(starts)} starts, {_part([s.wall_ms for s in starts])}; CPU {_part([s.cpu_ms for s in starts])}"


def _part(times_ms: list[float]) -> str:
    in_time = sum(each < START_MS for each in times_ms) / len(times_ms)
    most = sorted(times_ms)[len(times_ms) * 99 // 100]
    return (
        f"median {statistics.median(times_ms):.0f} ms, 99% {most:.0f} ms, most {max(times_ms):.0f} ms, "
        f"{100 * in_time:.1f}% under {START_MS // 1000} s"
    )
