"""What every family of histories is made with.

A family is a function of a `Draw`: it asks for what it needs of chance and appends steps. `FAMILIES` has them by name.
"""

from random import Random
from typing import Any

from ottla.wire.api import API
from tests.interop.oracle.wander.history import Step, Values, ref

#: Ours that Apache 4.3.1 does not have yet.
_NEWER = {"TxnOffsetCommit": 6}
_VERSIONS = {
    one.name: [version for version in one.stable_versions if version < _NEWER.get(one.name, 99)] for one in API.values()
}


class Draw:
    """A history in the making: its steps, and the chance that its seed gives."""

    def __init__(self, seed: str, length: int) -> None:
        self.rng = Random(seed)
        self.steps: list[Step] = []
        self.length = length
        #: Do members of the classic protocol say what the server can read? It reads when a group is converted.
        self.readable = False
        #: What all members vote for: between equal votes Apache chooses by the order of its maps.
        self.assignor = self.rng.choice(["uniform", "range"])

    def version(self, api: str, lowest: int = 0, highest: int = 99) -> int:
        """Any version that is stable; the newest more often."""
        known = [one for one in _VERSIONS[api] if lowest <= one <= highest]
        return known[-1] if self.rng.random() < 0.3 else self.rng.choice(known)

    def ask(
        self, api: str, version: int | None = None, on: int = 0, keep: dict[str, list[Any]] | None = None, **values: Any
    ) -> None:
        self.steps.append(Step(api, self.version(api) if version is None else version, values, on, keep or {}))

    def mostly(self, usual: Any, *others: Any, odds: float = 0.85) -> Any:
        """The usual, and now and then one of the others."""
        return usual if self.rng.random() < odds else self.rng.choice(others)

    def maybe(self, odds: float = 0.5) -> bool:
        return self.rng.random() < odds

    def pick(self, weights: dict[str, float]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        entries: list[Values] = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        made = {"name": f"~{name}", "num_partitions": partitions, "replication_factor": 1, "configs": entries}
        kept = {f"{name}.id": ["topics.0.topic_id"]}
        self.ask("CreateTopics", 7, keep=kept, topics=[made], timeout_ms=15_000)

    def of(self, name: str, field: str = "name") -> Values:
        """A topic by name and by id: each version takes what it has."""
        return {field: f"~{name}", "topic_id": ref(f"{name}.id", {"$bytes": "01" * 16})}
