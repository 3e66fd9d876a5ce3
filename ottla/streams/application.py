"""What `StreamsBuilder.build` gives: a checked program with its plan and its topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.flow.engine import Settings
from ottla.flow.handler import Handlers
from ottla.flow.plan import Plan
from ottla.flow.serde import Serde
from ottla.flow.topology import Topology


class Application:
    """`plan` is what the program says, `topology` what is executed, `settings` what its tasks are told."""

    def __init__(
        self,
        application_id: str,
        plan: Plan,
        topology: Topology,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        handlers: Handlers | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.application_id = application_id
        self.plan = plan
        self.topology = topology
        self.settings = Settings(
            application_id, key_serde, value_serde, handlers or Handlers(), configs=dict(config or {})
        )

    def describe(self) -> str:
        """The topology in the words of Kafka Streams' `Topology.describe()`."""
        return self.topology.describe()

    def explain(self) -> str:
        """The plan: each step with its schema, partitioning and times, and the line that made it."""
        return self.plan.explain()
