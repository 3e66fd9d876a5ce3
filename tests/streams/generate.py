"""Random programs and inputs, by seed: every operator, records out of order and late, null keys and tombstones."""

from random import Random
from typing import Any

Statement = dict[str, str]


class Generator:
    """One program. `streams` and `tables` hold what was made so far, by name."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.program: list[Statement] = []
        self.streams: list[str] = []
        self.tables: list[str] = []
        #: Tables whose values are strings under string keys: what joins and groups take.
        self.plain: list[str] = []
        self.outputs = 0
        self.topics = ["a", "b", "c"]

    def add(self, op: str, **fields: str | None) -> str:
        name = f"n{len(self.program)}"
        self.program.append(
            {"id": name, "op": op, **{key: value for key, value in fields.items() if value is not None}}
        )
        return name

    def make(self) -> list[Statement]:
        rng = self.rng
        self.streams.append(self.add("stream", topic="a"))
        if rng.random() < 0.5:
            self.streams.append(self.add("stream", topic="b"))
        else:
            self._table(self.add("table", topic="b", store=rng.choice((None, "src-b"))))
        versioned = "40" if rng.random() < 0.15 else None
        self._table(self.add("table", topic="c", versioned=versioned, store="src-c" if versioned else None))
        for _ in range(rng.randint(1, 5)):
            rng.choice((self._stateless, self._aggregate, self._join, self._derive, self._aggregate, self._join))()
        for stream in self.streams[-2:]:
            self._to(stream)
        for table in self.tables[-3:]:
            self._to(self.add("to_stream", on=table))
        return self.program

    def _to(self, stream: str) -> None:
        self.program.append({"op": "to", "on": stream, "topic": f"out{self.outputs}"})
        self.outputs += 1

    def _table(self, table: str, plain: bool = True) -> None:
        self.tables.append(table)
        if plain:
            self.plain.append(table)

    def _name(self) -> str | None:
        return f"name{len(self.program)}" if self.rng.random() < 0.2 else None

    def _store(self, chance: float = 0.3) -> str | None:
        return f"store{len(self.program)}" if self.rng.random() < chance else None

    def _stateless(self) -> None:
        rng, stream = self.rng, self.rng.choice(self.streams)
        op, functions = rng.choice(
            (
                ("filter", ("starts:x", "not_null", "key:k", "all")),
                ("filter_not", ("starts:x", "key:j")),
                ("map_values", ("append:!", "with_key", "null_on:y")),
                ("flat_map_values", ("twice", "chars")),
                ("select_key", ("first", "value", "null_on:z", "const:c")),
                ("repartition", (None,)),
                ("merge", (None,)),
                ("flat_map", ("chars",)),
            )
        )
        other = rng.choice(self.streams) if op == "merge" else None
        self.streams.append(self.add(op, on=stream, f=rng.choice(functions), other=other, name=self._name()))

    def _aggregate(self) -> None:
        rng = self.rng
        if self.plain and rng.random() < 0.3:
            grouped = self.add("group_by", on=rng.choice(self.plain), f=rng.choice(("first", "const:g", "picky")))
            self._finish(grouped, "g", plain=True)
            return
        stream = rng.choice(self.streams)
        if rng.random() < 0.6:
            grouped = self.add("group_by_key", on=stream, name=self._name())
        else:
            grouped = self.add("group_by", on=stream, f=rng.choice(("first", "value")), name=self._name())
        windows = rng.choice((None, None, "time:10:10:5", "time:10:4:0", "sliding:10:20", "session:5:20"))
        if windows is None:
            self._finish(grouped, None, plain=True)
            return
        grouped = self.add("windowed_by", on=grouped, windows=windows)
        close = rng.random() < 0.25
        if close:
            grouped = self.add("emit", on=grouped)
        table = self._finish(grouped, None, plain=False)
        if not close and rng.random() < 0.3:
            self.tables.append(self.add("suppress", on=table, until="close", name=self._name()))
        elif rng.random() < 0.3:
            again = self.add("group_by", on=table, f="const:n")
            self._finish(again, "g", plain=True)

    def _finish(self, grouped: str, subtract: str | None, *, plain: bool) -> str:
        rng = self.rng
        op = rng.choice(("count", "reduce", "aggregate"))
        fields: dict[str, str | None] = {"store": self._store(), "name": self._name()}
        if op != "count":
            fields["f"] = rng.choice(("plus", "concat"))
            fields["g"] = "minus" if subtract else None
        if op == "aggregate":
            fields["init"] = rng.choice(("empty", "text:I"))
        table = self.add(op, on=grouped, **fields)
        # Counts are numbers: no more functions of text.
        self._table(table, plain and op != "count")
        return table

    def _join(self) -> None:
        rng = self.rng
        kind = rng.choice(("streams", "stream-table", "tables", "foreign-key"))
        if kind == "streams":
            op = rng.choice(("join", "left_join", "outer_join"))
            windows = rng.choice(("10:10:0", "10:10:5", "5:0:3", "0:8:2"))
            left, right = rng.choice(self.streams), rng.choice(self.streams)
            joined = self.add(
                op, on=left, other=right, f="bar", windows=windows, name=self._name(), store=self._store()
            )
            self.streams.append(joined)
        elif kind == "stream-table" and self.plain:
            op = rng.choice(("join", "left_join"))
            left, right = rng.choice(self.streams), rng.choice(self.plain)
            self.streams.append(
                self.add(op, on=left, other=right, f=rng.choice(("bar", "with_key")), name=self._name())
            )
        elif kind == "tables" and self.plain:
            op = rng.choice(("join", "left_join", "outer_join"))
            left, right = rng.choice(self.plain), rng.choice(self.plain)
            self._table(self.add(op, on=left, other=right, f="bar", name=self._name(), store=self._store()))
        elif len(self.plain) > 1:
            op = rng.choice(("join", "left_join"))
            left, right = rng.sample(self.plain, 2)
            fk = rng.choice(("first", "value", "null_on:y"))
            self._table(self.add(op, on=left, other=right, f="bar", fk=fk, name=self._name(), store=self._store()))

    def _derive(self) -> None:
        rng = self.rng
        if not self.plain:
            return
        table = rng.choice(self.plain)
        op = rng.choice(("filter", "filter_not", "map_values", "to_stream", "suppress", "to_table"))
        if op == "to_stream":
            self.streams.append(self.add(op, on=table, name=self._name()))
        elif op == "to_table":
            self._table(self.add(op, on=rng.choice(self.streams), name=self._name(), store=self._store()))
        elif op == "suppress":
            if not any("versioned" in each for each in self.program):
                until = rng.choice(("time:10", "time:5:2", "time:0"))
                self._table(self.add(op, on=table, until=until, name=self._name()))
        else:
            f = rng.choice(("append:+", "null_on:y") if op == "map_values" else ("starts:x", "not_null", "key:k"))
            self._table(self.add(op, on=table, f=f, name=self._name(), store=self._store()))


def inputs(seed: int, topics: list[str], count: int) -> list[dict[str, Any]]:
    """Records whose times go forward, back a little, far back, and jump."""
    rng = Random(seed * 7919 + 1)
    steps: list[dict[str, Any]] = []
    time = 0
    for number in range(count):
        if rng.random() < 0.03:
            steps.append({"wall": rng.choice((1, 500, 1000))})
            continue
        time += rng.choice((0, 0, 1, 1, 2, 3, 5, 11, 30 if rng.random() < 0.3 else 1))
        late = rng.choice((0, 0, 0, 1, 3, 7, 15, 40))
        value = rng.choice(("x", "y", "z", "k")) + str(number)
        steps.append(
            {
                "topic": rng.choice(topics),
                "key": None if rng.random() < 0.06 else rng.choice(("k", "j", "x", "kk")),
                "value": None if rng.random() < 0.12 else value,
                "timestamp": max(0, time - late),
                "headers": [["h", str(number)]] if rng.random() < 0.5 else [],
            }
        )
    return steps


def program(seed: int) -> tuple[list[Statement], list[dict[str, Any]]]:
    """A program and its inputs."""
    statements = Generator(seed).make()
    topics = sorted({each["topic"] for each in statements if each["op"] in ("stream", "table")})
    return statements, inputs(seed, topics, 60)
