"""BranchedKStream: a stream split into branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.flow import plan
from ottla.flow.check import checked
from ottla.flow.column.expression import Expression
from ottla.flow.error import TopologyError
from ottla.flow.where import here
from ottla.streams.function import callable_of
from ottla.streams.option import Branched

if TYPE_CHECKING:
    from ottla.streams.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


@checked
class BranchedKStream(Generic[K, V]):
    """Branches in the order in which their predicates are tried (Kafka Streams: BranchedKStream).

    A branch's name in the returned dict is that of the split plus its own name or, without one, its position from 1
    (0: the default branch).
    """

    def __init__(self, stream: KStream[K, V], node: plan.Branch) -> None:
        self._stream = stream
        self._node = node
        self._count = 0
        self._branches: dict[str, KStream[Any, Any]] = {}
        self._names: set[str] = set()
        self._ended = False

    def branch(
        self, predicate: Callable[[K, V], Any] | Expression, branched: Branched | str | None = None
    ) -> BranchedKStream[K, V]:
        """Add a branch for the records for which `predicate(key, value)` is true and no earlier branch took them.
        TopologyError if it has the name of another branch.
        """
        self._count += 1
        self._add(predicate, branched, self._count)
        return self

    def default_branch(self, branched: Branched | str | None = None) -> dict[str, KStream[Any, Any]]:
        """Add a branch for all remaining records. Returns all branches by name."""
        self._add(None, branched, 0)
        self._ended = True
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[Any, Any]]:
        """Drop all remaining records. Returns all branches by name."""
        self._ended = True
        return self._branches

    def _add(
        self, predicate: Callable[[K, V], Any] | Expression | None, branched: Branched | str | None, position: int
    ) -> None:
        from ottla.streams.stream import KStream

        options = Branched(branched) if isinstance(branched, str) else branched or Branched()
        builder = self._stream.builder
        name = self._node.name + (options.name if options.name is not None else str(position))
        if self._ended:
            raise TopologyError(
                f"split {self._node.name} has all its branches: add others before default_branch() or "
                "no_default_branch()",
                here(),
            )
        if name in self._names:
            raise TopologyError(f"a branch named {name} has already been added: names must be unique", here())
        self._names.add(name)
        builder.next_name(name)
        arm = builder.add(
            plan.Arm(
                name,
                (self._node,),
                self._stream.node.schema,
                here(),
                None if predicate is None else callable_of(predicate),
            )
        )
        stream: KStream[K, V] = KStream(builder, arm, self._stream.sources)
        if options.function is not None:
            result = options.function(stream)
            if result is not None:
                self._branches[name] = result
        elif options.consumer is not None:
            options.consumer(stream)
        else:
            self._branches[name] = stream
