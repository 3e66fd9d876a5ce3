"""KGroupedTable: a table regrouped under new keys, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.check import checked
from ottla.flow.column.expression import Expression
from ottla.flow.column.function import FoldFunction
from ottla.flow.error import TopologyError
from ottla.flow.serde import LONG, Serde, serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import here
from ottla.streams.grouped import count_record, uncount_record, zero
from ottla.streams.option import Materialized, materialized, store_of

if TYPE_CHECKING:
    from ottla.streams.table import KTable

K = TypeVar("K")
V = TypeVar("V")
MaterializedLike = Materialized | str | StoreSpec | None


@checked
class KGroupedTable(Generic[K, V]):
    """A regrouped table (Kafka Streams: KGroupedTable). For each update of a row, an aggregation subtracts the row's
    old value and adds its new one.
    """

    def __init__(
        self, table: KTable[Any, Any], node: plan.TableGroup, name: str | None, key: Serde | None, value: Serde | None
    ) -> None:
        self._builder = table.builder
        self._node = node
        self._name = name
        self._key = key
        self._value = value
        self._repartition: plan.TableRepartition | None = None

    def count(self, name: str | None = None, materialized: MaterializedLike = None) -> KTable[K, int]:
        """Count the rows of each key."""
        functions = (zero, count_record, uncount_record)
        return self._aggregate("count", "KTABLE-AGGREGATE-", *functions, name, materialized, LONG)

    def reduce(
        self,
        adder: Callable[[V, V], V] | Expression,
        subtractor: Callable[[V, V], V] | Expression,
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[K, V]:
        """Combine the rows by `adder(aggregate, value)` and `subtractor(aggregate, value)`, or by two column
        expressions of `key`, `left` (the aggregate) and `right` (the value). The first value starts the aggregate.
        """
        functions = _reducers(adder, subtractor)
        return self._aggregate("reduce", "KTABLE-REDUCE-", None, *functions, name, materialized, self._value)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[K, V, Any], Any] | Expression,
        subtractor: Callable[[K, V, Any], Any] | Expression,
        name: str | None = None,
        materialized: MaterializedLike = None,
    ) -> KTable[K, Any]:
        """Fold the rows by `adder(key, value, aggregate)` and `subtractor(key, value, aggregate)`, starting from
        `initializer()`. Adder and subtractor may be column expressions of `key`, `left` (the aggregate) and `right`
        (the value).
        """
        functions: tuple[Any, Any] = _folds(adder, subtractor) or (adder, subtractor)
        return self._aggregate("aggregate", "KTABLE-AGGREGATE-", initializer, *functions, name, materialized, None)

    def _aggregate(
        self,
        operation: str,
        prefix: str,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        name: str | None,
        given: MaterializedLike,
        value: Serde | None,
    ) -> KTable[Any, Any]:
        from ottla.streams.table import KTable

        where, store_options, builder = here(), materialized(given), self._builder
        store = builder.store_name(store_options, "KTABLE-AGGREGATE-")
        sink = builder.named(name, "KSTREAM-SINK-", "-sink")
        source = builder.named(name, "KSTREAM-SOURCE-", "-source")
        node_name = builder.named(name, prefix)
        topic = f"{self._name or store}-repartition"
        if self._repartition is None or self._name is None:
            schema = plan.Schema("table", self._key, self._value)
            self._repartition = builder.add(plan.TableRepartition(source, (self._node,), schema, where, topic, sink))
        key, value = (
            serde(store_options.key_serde, where) or self._key,
            serde(store_options.value_serde, where) or value,
        )
        spec = store_of(store_options, store, "timestamped_key_value", key, value)
        schema = plan.Schema("table", key, value, versioned=spec.versioned)
        parents = (self._repartition,)
        node = builder.add(
            plan.TableAggregate(node_name, parents, schema, where, spec, initializer, adder, subtractor, operation)
        )
        sources = frozenset({self._repartition.name})
        return KTable(builder, node, sources, store if store_options.store_name is not None else None)


def _folds(adder: Any, subtractor: Any) -> tuple[FoldFunction, FoldFunction] | None:
    """Two column expressions as functions; None for Python functions. TopologyError if only one is an expression."""
    expressions = [isinstance(each, Expression) for each in (adder, subtractor)]
    if not any(expressions):
        return None
    if not all(expressions):
        raise TopologyError("adder and subtractor must be two column expressions or two functions", here())
    return FoldFunction(adder), FoldFunction(subtractor)


def _reducers(adder: Any, subtractor: Any) -> tuple[Any, Any]:
    """Reducers as functions of key, value and aggregate."""
    return _folds(adder, subtractor) or (
        lambda key, value, aggregate: adder(aggregate, value),
        lambda key, value, aggregate: subtractor(aggregate, value),
    )
