"""A program for Spark's real-time mode: which ones it can run, and such a program as one projection in Spark SQL.

Rules:
- Each way from a source to a sink is a `_Path`: SQL for its key and value, and whether a record is still on it.
- A record that the engine would fail on has an error instead, the text of that failure. Only the last column raises it,
  so it does not depend on the order in which Spark evaluates.
- Results that later steps use are columns of their own, so that Spark computes them once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.flow import plan
from ottla.flow.column.function import ColumnFunction
from ottla.flow.column.kind import type_of
from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.handler import log_and_fail
from ottla.flow.serde import Serde
from ottla.flow.task.receive import fail_on_invalid_timestamp
from ottla.flow.topology import Source, Topology
from ottla.flow.where import Where
from ottla.spark.streams.sql import FORMATS, NoCounterpart, Term, term, text

_WITHOUT = "leave out real_time"
_TESTS = ("filter", "filter_not")
_STATELESS = (*_TESTS, "map_values", "select_key")
_USABLE = "filter, map_values, select_key and split with column expressions"


@dataclass(frozen=True, slots=True)
class _Path:
    """A way from a source to a step. `alive` is never null; `error` is null for a record without one. `route` are the
    numbers of its steps in the plan.
    """

    alive: str
    error: str
    key: Term
    value: Term
    route: tuple[int, ...]


@dataclass(slots=True)
class Projection:
    """The program in SQL, over the columns of Spark's Kafka source."""

    #: Columns to add, in this order.
    columns: list[tuple[str, str]] = field(default_factory=list)
    #: The outputs of a record, in the engine's order: structs of topic, key, value and error; null where none.
    outputs: list[str] = field(default_factory=list)

    def bound(self, sql: str) -> str:
        """The name of a new column."""
        name = f"c{len(self.columns)}"
        self.columns.append((name, sql))
        return name


def project(program: plan.Plan, topology: Topology, settings: Settings) -> Projection:
    """The program as a projection. TopologyError names the first step that real-time mode cannot run."""
    _check_handlers(settings)
    _check_topology(program, topology)
    return _Compiler(program, topology, settings).run()


def _check_handlers(settings: Settings) -> None:
    handlers = settings.handlers
    given = {handlers.deserialization, handlers.processing, handlers.production}
    if given != {log_and_fail} or handlers.dead_letter_topic is not None:
        raise TopologyError(
            "handlers do not run in real-time mode: a record that cannot be processed ends the program; leave them "
            f"out, or {_WITHOUT}"
        )


def _check_topology(program: plan.Plan, topology: Topology) -> None:
    """Refuse nodes that are not part of the plan (Topology's own methods)."""
    if not program.nodes and topology.order:
        nodes: Mapping[str, Any] = topology.sources
        name, node = next(iter(nodes.items()))
        raise _refused(name, node.where, "the program is not made by StreamsBuilder's streams")


def _refused(name: str, where: Where, why: str, what: str = "") -> TopologyError:
    advice = f"{what} or {_WITHOUT}" if what else _WITHOUT
    return TopologyError(f"{name} cannot run in real-time mode, because {why}; {advice}", where)


class _Compiler:
    """The steps of a plan in order, each with the paths that leave it."""

    def __init__(self, program: plan.Plan, topology: Topology, settings: Settings) -> None:
        self.program = program
        self.topology = topology
        self.defaults = settings.defaults
        self.projection = Projection()
        self.paths: dict[plan.Node, list[_Path]] = {}
        self.sinks: list[tuple[tuple[int, ...], str]] = []

    def run(self) -> Projection:
        position = "concat(topic, '-', CAST(partition AS STRING), ' at offset ', CAST(offset AS STRING))"
        self.position = self.projection.bound(position)
        for number, node in enumerate(self.program):
            given = [
                replace(path, route=(*path.route, number)) for parent in node.parents for path in self.paths[parent]
            ]
            try:
                self.paths[node] = self._step(node, given, number)
            except NoCounterpart as error:
                raise _refused(node.name, node.where, str(error), "write it another way") from error
        if not self.sinks:
            raise TopologyError(f"a program without outputs cannot run in real-time mode; add to(), or {_WITHOUT}")
        self.projection.outputs = [sql for _, sql in sorted(self.sinks)]
        return self.projection

    def _step(self, node: plan.Node, given: list[_Path], number: int) -> list[_Path]:
        match node:
            case plan.StreamSource():
                return [self._source(node, number)]
            case plan.Stateless(operation="merge") | plan.Branch():
                return given
            case plan.Stateless(operation=operation) if operation in _STATELESS:
                function = self._function(node, node.function)
                return [self._stateless(node, function, path) for path in given]
            case plan.Arm():
                return [self._arm(node, path) for path in given]
            case plan.SinkNode():
                for path in given:
                    self._sink(node, path)
                return []
            case plan.Stateless() | plan.Process():
                raise _refused(node.name, node.where, "it calls a Python function", f"use {_USABLE}")
            case plan.Repartition():
                raise _refused(node.name, node.where, "it needs a repartition topic")
        raise _refused(node.name, node.where, "it keeps state")

    def _source(self, node: plan.StreamSource, number: int) -> _Path:
        # The topology has one source for streams of the same topics.
        source = next(each for each in self.topology.sources.values() if set(each.topics) == set(node.topics))
        if node.pattern is not None:
            raise _refused(node.name, node.where, "it reads a pattern of topics", "name the topics")
        if source.extractor not in (None, fail_on_invalid_timestamp):
            raise _refused(node.name, node.where, "its timestamp_extractor is a Python function", "leave it out")
        serdes = self._serdes(node, source)
        key, value = (FORMATS[each].reading(column) for each, column in zip(serdes, ("key", "value"), strict=True))
        alive = self.projection.bound(f"topic IN ({', '.join(map(text, source.topics))})")
        error = self._failure(node, alive, key.errors, f"SerdeError: the {serdes[0]} serde cannot read the key", "NULL")
        error = self._failure(
            node, alive, value.errors, f"SerdeError: the {serdes[1]} serde cannot read the value", error
        )
        error = self._failure(node, alive, ("(timestamp < timestamp_millis(0))",), "the timestamp is negative", error)
        return _Path(alive, self.projection.bound(error), self._bound(key), self._bound(value), (number,))

    def _serdes(self, node: plan.StreamSource | plan.SinkNode, of: Source | plan.Schema) -> tuple[Serde, Serde]:
        key, value = of.key or self.defaults[0], of.value or self.defaults[1]
        for what, each in (("key", key), ("value", value)):
            if each not in FORMATS or each is None:
                names = ", ".join(str(known) for known in FORMATS)
                raise _refused(node.name, node.where, f"its {what} serde is {each}", f"use one of {names}")
        assert key is not None and value is not None
        return key, value

    def _function(self, node: plan.Node, function: Any) -> ColumnFunction:
        if not isinstance(function, ColumnFunction):
            raise _refused(node.name, node.where, "it calls a Python function", "write it as a column expression")
        return function

    def _stateless(self, node: plan.Stateless, function: ColumnFunction, path: _Path) -> _Path:
        is_test = node.operation in _TESTS
        result = self._test(node, function, path) if is_test else self._evaluate(function, path)
        error = self.projection.bound(self._broken(node, function, path.alive, result, path.error))
        if is_test:
            sign = "" if node.operation == "filter" else "NOT "
            alive = self.projection.bound(f"({path.alive} AND {sign}coalesce({result.sql}, FALSE))")
            return replace(path, alive=alive, error=error)
        bound = self._bound(result)
        if node.operation == "select_key":
            return replace(path, error=error, key=bound)
        return replace(path, error=error, value=bound)

    def _arm(self, node: plan.Arm, path: _Path) -> _Path:
        """A branch takes the records for which no earlier predicate of its split is true."""
        (split,) = node.parents
        rest, error = path.alive, path.error
        for arm in self.program.children(split):
            assert isinstance(arm, plan.Arm)
            if arm.predicate is None:
                continue
            function = self._function(arm, arm.predicate)
            result = self._test(arm, function, path)
            error = self._broken(arm, function, rest, result, error)
            if arm is node:
                rest = f"({rest} AND coalesce({result.sql}, FALSE))"
                break
            rest = f"({rest} AND NOT coalesce({result.sql}, FALSE))"
        return replace(path, alive=self.projection.bound(rest), error=self.projection.bound(error))

    def _sink(self, node: plan.SinkNode, path: _Path) -> None:
        if not isinstance(node.topic, str):
            raise _refused(node.name, node.where, "its topic is a Python function", "use split()")
        if node.partitioner is not None:
            raise _refused(node.name, node.where, "its partitioner is a Python function", "leave it out")
        serdes = self._serdes(node, node.schema)
        for what, own, given in zip(("key", "value"), serdes, (path.key, path.value), strict=True):
            if given.kind != FORMATS[own].kind:
                why = f"its {what} serde writes a {FORMATS[own].kind}, not a {given.kind}"
                raise _refused(node.name, node.where, why, f"pass another {what}_serde")
        key, value = FORMATS[serdes[0]].writing(path.key), FORMATS[serdes[1]].writing(path.value)
        error = self._failure(
            node, path.alive, key.errors, f"SerdeError: the {serdes[0]} serde cannot write the key", path.error
        )
        error = self._failure(
            node, path.alive, value.errors, f"SerdeError: the {serdes[1]} serde cannot write the value", error
        )
        error = self.projection.bound(error)
        fields = f"'topic', {text(node.topic)}, 'key', {key.sql}, 'value', {value.sql}, 'error', {error}"
        self.sinks.append((path.route, f"IF({path.alive} OR {error} IS NOT NULL, named_struct({fields}), NULL)"))

    def _test(self, node: plan.Node, function: ColumnFunction, path: _Path) -> Term:
        result = self._evaluate(function, path)
        if result.kind != "boolean":
            raise _refused(node.name, node.where, f"{function.expression!r} is a {result.kind}", "compare it")
        return result

    def _evaluate(self, function: ColumnFunction, path: _Path) -> Term:
        # Types that were not known when the program was built are known here.
        type_of(function.expression, path.key.kind, path.value.kind)
        time = Term("long", "unix_millis(timestamp)")
        return term(function.expression, {"key": path.key, "value": path.value, "timestamp": time})

    def _broken(self, node: plan.Node, function: ColumnFunction, alive: str, result: Term, error: str) -> str:
        why = f"{function.expression!r} has no result: an overflow, a division by zero or an invalid cast"
        return self._failure(node, alive, result.errors, why, error)

    def _failure(self, node: plan.Node, alive: str, conditions: Iterable[str], why: str, error: str) -> str:
        """SQL for the first error of a record: `error`, or that it is alive and fails one of the conditions here."""
        if not (failed := " OR ".join(conditions)):
            return error
        told = f"concat({text(f'{node.name} ({node.where}) failed on ')}, {self.position}, {text(f': {why}')})"
        return f"coalesce({error}, IF({alive} AND ({failed}), {told}, CAST(NULL AS STRING)))"

    def _bound(self, result: Term) -> Term:
        return Term(result.kind, self.projection.bound(result.sql))
