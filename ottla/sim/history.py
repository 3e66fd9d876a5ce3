"""The clients' operations and results in order, in the format of Jepsen's kafka workload (EDN). Pure.

Rules:
- A poll of a group's member ends when its positions are committed, not before.
- An operation begins with `:invoke` and ends with `:ok`, or with `:info` and what is known of its result if its outcome
  is unknown. Its client then goes on as a new process, as it does after a `:crash`: a process is one client object.
- `:f` is `:send`, `:poll` or `:subscribe`; `:value` is a list of `[:send key value]` and `[:poll]`, which become
  `[:send key [offset value]]` and `[:poll {key [[offset value] ...]}]`. A key is a partition, a value a unique number.
  `:assign` is a read from the beginning, outside of any group.
- Faults are `:info` operations of the process `:nemesis`.

Source: jepsen.tests.kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla.kernel.named import NamedTuple

_NEMESIS = ":nemesis"


class SendOperation(NamedTuple):
    """A sent record; `offset` is None until it is known."""

    key: int
    value: bytes
    offset: int | None = None


class PollOperation(NamedTuple):
    """A poll: (key, offset, value) of each record; None before it is done."""

    records: tuple[tuple[int, int, bytes], ...] | None = None


class OperationHistory:
    """The operations of all clients. `now_ns` is a monotonic clock in nanoseconds."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._lines: list[str] = []
        #: Client -> its current process number.
        self._processes: dict[str, int] = {}
        self._next_process = 0
        self._values: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @contextmanager
    def operation(
        self, client: str, asked: list[SendOperation] | list[PollOperation]
    ) -> Iterator[list[SendOperation] | list[PollOperation]]:
        """Record the operation done in the `with` block, which replaces the list's items by their results."""
        process = str(self._process(client))
        what = ":send" if isinstance(asked[0], SendOperation) else ":poll"
        self._add(process, ":invoke", what, self._edn(asked))
        try:
            yield asked
        except BaseException:
            self._add(process, ":info", what, self._edn(asked))
            del self._processes[client]
            raise
        self._add(process, ":ok", what, self._edn(asked))

    def subscribed(self, client: str, keys: Iterable[int]) -> None:
        """Record that a client reads these keys from now on, from its group's positions."""
        value = f"[{' '.join(map(str, keys))}]"
        for kind in (":invoke", ":ok"):
            self._add(str(self._process(client)), kind, ":subscribe", value)

    def crash(self, client: str) -> None:
        """Record that another client object takes this one's place; nothing if its last operation ended it."""
        process = self._processes.pop(client, None)
        if process is not None:
            for kind in (":invoke", ":info"):
                self._add(str(process), kind, ":crash", "nil")

    def read_to_the_end(self, client: str, logs: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
        """Record that a client read all logs (key -> (offset, value))."""
        value = f"[{' '.join(map(str, logs))}]"
        for kind in (":invoke", ":ok"):
            self._add(str(self._process(client)), kind, ":assign", f"{value}, :seek-to-beginning? true")
        with self.operation(client, polls := [PollOperation()]):
            polls[:] = [PollOperation(tuple((key, *each) for key, log in logs.items() for each in log))]

    def fault(self, name: str, what: str) -> None:
        """Record a fault injected into the nodes; `name` has letters and digits only."""
        self._add(_NEMESIS, ":info", f":{name}", f'"{what}"')

    def text(self) -> str:
        """The history, one operation a line."""
        return "".join(self._lines)

    def _process(self, client: str) -> int:
        process = self._processes.get(client)
        if process is None:
            process = self._processes[client] = self._next_process
            self._next_process += 1
        return process

    def _add(self, process: str, kind: str, what: str, value: str) -> None:
        time = self._now_ns() - self._began_ns
        index = len(self._lines)
        self._lines.append(
            f"{{:index {index}, :time {time}, :type {kind}, :process {process}, :f {what}, :value {value}}}\n"
        )

    def _number(self, value: bytes) -> int:
        return self._values.setdefault(value, len(self._values))

    def _edn(self, parts: Iterable[SendOperation | PollOperation]) -> str:
        return f"[{' '.join(map(self._part, parts))}]"

    def _part(self, part: SendOperation | PollOperation) -> str:
        if isinstance(part, SendOperation):
            number = self._number(part.value)
            return f"[:send {part.key} {number if part.offset is None else f'[{part.offset} {number}]'}]"
        if part.records is None:
            return "[:poll]"
        by_key: dict[int, list[str]] = {}
        for key, offset, value in part.records:
            by_key.setdefault(key, []).append(f"[{offset} {self._number(value)}]")
        keys = " ".join(f"{key} [{' '.join(found)}]" for key, found in by_key.items())
        return f"[:poll {{{keys}}}]"
