"""StreamsBuilder, the entry point of the DSL.

    builder = StreamsBuilder()
    lines = builder.stream("lines", key_serde="string", value_serde="string")
    words = lines.flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(materialized="counts").to_stream().to("counts")
    app = builder.build(application_id="word-count")
    print(app.describe())

Operators, stores and internal topics are numbered as in Kafka Streams: one counter, in the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ottla.flow import plan, setting
from ottla.flow.check import check_name, check_supplier, checked
from ottla.flow.error import TopologyError
from ottla.flow.handler import Handlers
from ottla.flow.lower import lower
from ottla.flow.processor import Supplier
from ottla.flow.serde import serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.topology import Extractor, Topology
from ottla.flow.where import Where, here
from ottla.kernel.argument import shown
from ottla.streams.application import Application
from ottla.streams.option import Consumed, Materialized, materialized, store_of
from ottla.streams.stream import KStream
from ottla.streams.table import GlobalKTable, KTable

if TYPE_CHECKING:
    #: The values of `build(emit=)`. For type checkers only: `build` refuses others with its own words.
    Emit = Literal["every"]

NodeT = TypeVar("NodeT", bound=plan.Node)


@checked
class StreamsBuilder:
    """Builds a program: sources first, then operators on the streams and tables they return, then `build`.

    Serdes are given as names ("string", "json", "long", ...; see `ottla.streams.serdes`) or as `Serde` objects; None
    takes the default passed to `build`. Keyword arguments win over the same field of `consumed`. Errors are
    TopologyError and name the line of the program.
    """

    def __init__(self) -> None:
        self._nodes: list[plan.Node] = []
        self._copartitioned: list[tuple[frozenset[str], Where]] = []
        self._index = 0

    # ---- sources

    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        consumed: Consumed | None = None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read one topic, several, or all topics whose whole name matches a compiled pattern, as a stream.

        `timestamp_extractor(record, partition_time)` returns ms since 1970; a negative result drops the record.
        `offset_reset` says where to start without a committed offset: "earliest" (the default), "latest", "none", or
        "by_duration:PT1H", at the records of the last hour.
        """
        options = _consumed(consumed, key_serde, value_serde, timestamp_extractor, offset_reset, name)
        where = here()
        names = () if isinstance(topics, re.Pattern) else (topics,) if isinstance(topics, str) else tuple(topics)
        names = tuple(dict.fromkeys(names))
        pattern = topics if isinstance(topics, re.Pattern) else None
        if not names and pattern is None:
            raise TopologyError("stream() has no topic: name at least one", where)
        schema = plan.Schema("stream", serde(options.key_serde, where), serde(options.value_serde, where))
        node = plan.StreamSource(
            self.named(options.name, "KSTREAM-SOURCE-"),
            (),
            schema,
            where,
            names,
            pattern,
            options.timestamp_extractor,
            options.offset_reset,
        )
        return KStream(self, self.add(node), frozenset({node.name}))

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: the latest value of each key; a null value deletes the key.

        The table gets a state store if `materialized` names one or if a later operator needs it.
        """
        options = _consumed(consumed, key_serde, value_serde, timestamp_extractor, offset_reset, name)
        node = plan.TableSource(**self._table(topic, options, materialized, "table"))
        return KTable(self, self.add(node), frozenset({node.source}), node.store.name if node.materialized else None)

    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | str | StoreSpec | None = None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read a topic as a global table: every task holds all of its partitions (Kafka Streams: globalTable).

        TopologyError if `materialized` asks for a versioned store.
        """
        options = _consumed(consumed, key_serde, value_serde, timestamp_extractor, None, name)
        parts = self._table(topic, options, materialized, "global table")
        if parts["store"].versioned:
            raise TopologyError("a global table cannot be versioned", parts["where"])
        queryable = parts.pop("materialized")
        del parts["reset"]
        node = self.add(plan.GlobalSource(**parts))
        return GlobalKTable(self, node, node.store.name, queryable)

    def add_state_store(self, store: StoreSpec) -> StreamsBuilder:
        """Add a state store for processors, made by `ottla.streams.stores`. `process` connects it by name."""
        self.add(plan.AddStore(store.name, (), plan.Schema("nothing"), here(), store))
        return self

    def add_global_store(
        self,
        store: StoreSpec,
        topic: str,
        supplier: Supplier,
        consumed: Consumed | None = None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Extractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a global store: every task holds all of `topic`, and the processor from `supplier` writes the store."""
        options = _consumed(consumed, key_serde, value_serde, timestamp_extractor, None, name)
        where = here()
        check_supplier(supplier, where)
        source = self.named(options.name, "KSTREAM-SOURCE-", "-source")
        processor = self.named(options.name, "KTABLE-SOURCE-")
        schema = plan.Schema("global table", serde(options.key_serde, where), serde(options.value_serde, where))
        extractor = options.timestamp_extractor
        self.add(plan.GlobalSource(processor, (), schema, where, topic, source, store, supplier, extractor))
        return self

    # ---- building

    def plan(self, optimizations: Iterable[str] = ()) -> plan.Plan:
        """The plan recorded so far."""
        return plan.Plan(tuple(self._nodes), tuple(self._copartitioned), frozenset(optimizations))

    def build(
        self,
        application_id: str = "application",
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        handlers: Handlers | None = None,
        config: Mapping[str, Any] | None = None,
        emit: Emit = "every",
    ) -> Application:
        """Check the program and return it ready to run.

        `key_serde` and `value_serde` are the default serdes. `handlers` decide what happens to records that cannot be
        read, processed or written. `config` takes Kafka Streams' setting names (`topology.optimization`,
        `ensure.explicit.internal.resource.naming`, ...). `emit`: which changes of tables are emitted; "every", the only
        value, is each of them, in all lanes, as Kafka Streams does without its record cache. TopologyError if the plan
        cannot run or would run wrong.
        """
        where = here()
        check_name(application_id, "application_id", where)
        if emit != "every":
            raise TopologyError(
                f"invalid emit: {shown(emit)} (expected 'every'; for fewer changes, put suppress() after the table)",
                where,
            )
        config = dict(config or {})
        setting.check(config, where)
        finished = self.plan(setting.optimizations(config))
        if not finished.nodes:
            raise TopologyError("the program is empty: begin with stream(), table() or global_table()", where)
        topology = lower(finished)
        if setting.explicit_names(config):
            _explicit(finished, topology, where)
        return Application(
            application_id, finished, topology, serde(key_serde, where), serde(value_serde, where), handlers, config
        )

    # ---- for streams and tables

    def add(self, node: NodeT) -> NodeT:
        """Append a node to the plan and return it."""
        self._nodes.append(node)
        return node

    def next_name(self, prefix: str) -> str:
        """The prefix with the next number."""
        self._index += 1
        return f"{prefix}{self._index - 1:010d}"

    def next_store(self, prefix: str) -> str:
        return self.next_name(f"{prefix}STATE-STORE-")

    def named(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """The given name with `suffix`, or the next generated one. A given name uses up a number as well."""
        generated = self.next_name(prefix)
        if name is None:
            return generated
        check_name(name, "name", here())
        return name + suffix

    def store_name(self, options: Materialized, prefix: str) -> str:
        return options.store_name if options.store_name is not None else self.next_store(prefix)

    def copartition(self, sources: frozenset[str], where: Where) -> None:
        self._copartitioned.append((sources, where))

    def _table(self, topic: str, options: Consumed, given: Any, kind: Any) -> dict[str, Any]:
        where = here()
        store_options = materialized(given)
        store = self.store_name(store_options, f"{topic}-")
        source = self.named(options.name, "KSTREAM-SOURCE-", "-source")
        name = self.named(options.name, "KTABLE-SOURCE-")
        key = serde(options.key_serde, where) or serde(store_options.key_serde, where)
        value = serde(options.value_serde, where) or serde(store_options.value_serde, where)
        spec = store_of(
            replace(store_options, key_serde=None, value_serde=None), store, "timestamped_key_value", key, value
        )
        return {
            "name": name,
            "parents": (),
            "schema": plan.Schema(kind, key, value, versioned=spec.versioned),
            "where": where,
            "topic": topic,
            "source": source,
            "store": spec,
            "materialized": store_options.store_name is not None,
            "extractor": options.timestamp_extractor,
            "reset": options.offset_reset,
        }


def _consumed(
    consumed: Consumed | None, key: Any, value: Any, extractor: Extractor | None, reset: str | None, name: str | None
) -> Consumed:
    consumed = consumed or Consumed()
    return Consumed(
        key if key is not None else consumed.key_serde,
        value if value is not None else consumed.value_serde,
        extractor or consumed.timestamp_extractor,
        reset or consumed.offset_reset,
        name or consumed.name,
    )


def _explicit(finished: plan.Plan, topology: Topology, where: Where) -> None:
    """Check that every internal topic and store has a name from the program (KIP-1111)."""
    used = {*topology.internal_topics, *topology.stores}
    unnamed = {
        f"{resource} ({node.where})": None
        for node in finished
        for resource in _resources(node)
        if resource in used and re.search(r"-\d{10}(-|$)", resource)
    }
    if unnamed:
        raise TopologyError(
            "ensure.explicit.internal.resource.naming is true, but these have generated names: "
            + ", ".join(unnamed)
            + "; pass name= or materialized= there",
            where,
        )


def _resources(node: plan.Node) -> Iterator[str]:
    """The internal topics and stores that a node may need."""
    if isinstance(node, (plan.Repartition, plan.TableRepartition)):
        yield node.topic
    if isinstance(node, plan.ForeignKeyJoin):
        yield from (node.names.registration_topic, node.names.response_topic)
    for field in plan.STORES:
        store = getattr(node, field, None)
        if isinstance(store, StoreSpec):
            yield store.name
