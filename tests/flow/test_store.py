"""State stores: what they give, in which order, and what they hide (Kafka Streams 4.3, tried)."""

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum, StrEnum
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.flow.error import TopologyError
from ottla.flow.make_store import make_store
from ottla.flow.record import ValueAndTimestamp, Window, Windowed
from ottla.flow.serde import LONG, STRING
from ottla.flow.store.changelog import Cell
from ottla.flow.store.ordered import MemoryBytes, after
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.versioned import IS_LATEST, NOT_PUT
from ottla.streams import stores

Logged = list[tuple[str, bytes, bytes | None, int]]


def opened(
    spec: StoreSpec, log: Logged | None = None, entries: MemoryBytes | None = None, observed: int | None = None
) -> Any:
    cells: dict[str, Cell] = {} if observed is None else {f"{spec.name}/observed": Cell(observed)}

    def note(*entry: Any) -> None:
        assert log is not None
        log.append(entry)

    return make_store(
        spec,
        entries or MemoryBytes(),
        (STRING, STRING),
        "topic",
        note if log is not None else None,
        lambda: 77,
        lambda name, initial: cells.setdefault(name, Cell(initial)),
    )


def test_key_value_ranges_include_both_ends_in_the_order_of_bytes() -> None:
    store = opened(stores.key_value("s", "string", "long"))
    store.put_all([("b", 2), ("a", 1), ("ab", 12), ("c", 3)])
    assert list(store.range("a", "b")) == [("a", 1), ("ab", 12), ("b", 2)]
    assert list(store.reverse_range("ab", None)) == [("c", 3), ("b", 2), ("ab", 12)]
    assert list(store.all()) == [("a", 1), ("ab", 12), ("b", 2), ("c", 3)]
    assert [key for key, _ in store.reverse_all()] == ["c", "b", "ab", "a"]
    assert list(store.prefix_scan("a")) == [("a", 1), ("ab", 12)]
    assert (store.put_if_absent("a", 5), store.put_if_absent("d", 5)) == (1, None)
    assert (store.delete("a"), store.delete("a"), store.get("a")) == (1, None, None)
    assert store.approximate_num_entries() == 4


def test_a_key_that_is_none_is_refused() -> None:
    store = opened(stores.key_value("s"))
    with pytest.raises(TypeError, match="store s: the key is None"):
        store.put(None, "v")
    with pytest.raises(TypeError, match="store s: the key is None"):
        store.get(None)


def test_an_lru_map_forgets_what_was_used_least() -> None:
    store = opened(stores.lru_map("s", 2, "string", "string"))
    store.put("a", "1")
    store.put("b", "2")
    assert store.get("a") == "1"
    store.put("c", "3")
    assert (store.get("a"), store.get("b"), store.get("c")) == ("1", None, "3")


def test_an_lru_map_counts_a_read_a_write_and_after_a_restart_the_order_of_bytes() -> None:
    log: Logged = []
    store = opened(stores.lru_map("s", 2), log)
    entries = store.entries
    for key in "ab":
        store.put(key, key)
    store.put("a", "again")
    store.get("unknown")
    store.put("c", "c")
    assert [key for key, _ in store.all()] == ["a", "c"]
    assert [entry[1:3] for entry in log][-2:] == [(b"c", b"c"), (b"b", None)]
    store.put("a", None)
    store.put("d", "d")
    assert [key for key, _ in store.all()] == ["c", "d"]
    store = opened(stores.lru_map("s", 2), None, entries)
    assert store.get("c") == "c"
    store.put("e", "e")
    assert [key for key, _ in store.all()] == ["c", "e"]
    store = opened(stores.lru_map("s", 1), None, entries)
    store.put("f", "f")
    assert [key for key, _ in store.all()] == ["f"], "a smaller map keeps fewer"


@pytest.mark.parametrize(
    "spec",
    [
        stores.key_value("s"),
        stores.lru_map("s", 5),
        stores.timestamped_key_value("s"),
        stores.window("s", 100, 10),
        stores.window("s", 100, 10, timestamped=True),
        stores.session("s", 100),
    ],
    ids=lambda spec: f"{spec.kind}{spec.capacity or ''}",
)
def test_a_store_without_serdes_takes_the_programs(spec: StoreSpec) -> None:
    entries = MemoryBytes()
    store = make_store(spec, entries, (LONG, STRING), "topic", None, lambda: 0, lambda _, initial: Cell(initial))
    value = ValueAndTimestamp("text", 0) if spec.kind.startswith("timestamped") else "text"
    where: tuple[Any, ...] = (5,) if spec.kind == "window" or spec.kind == "timestamped_window" else ()
    key = Windowed(7, Window(1, 5)) if spec.kind == "session" else 7
    store.put(key, value, *where)
    written = dict(entries.scan(None, None))
    assert all((7).to_bytes(8, "big") in entry for entry in written)
    assert any(data.endswith(b"text") for data in written.values())
    for defaults, what in (((None, STRING), "the key"), ((LONG, None), "the value")):
        with pytest.raises(TopologyError, match=f"{what} of state store s has no serde"):
            make_store(spec, MemoryBytes(), defaults, "topic", None, lambda: 0, lambda _, initial: Cell(initial))


class Kind(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("string", "a", Kind.A), ("bytes", b"a", bytearray(b"a")), ("double", 1, 1.0), ("json", 1, Number.ONE)],
)
def test_a_key_is_its_bytes_whatever_its_class(name: str, first: Any, second: Any) -> None:
    store = opened(stores.timestamped_key_value("s", name, "string"))
    windows = opened(stores.window("w", 100, 10, name, "string", timestamped=True))
    for number, key in enumerate((first, second, first, second)):
        value = ValueAndTimestamp(str(number), number)
        store.put(key, value)
        windows.put(key, value, 5)
        assert [store.get(each) for each in (first, second)] == [value, value]
        assert [windows.fetch_one(each, 5) for each in (first, second)] == [value, value]
    store.put(second, None)
    windows.put(second, None, 5)
    assert store.get(first) is windows.fetch_one(first, 5) is None


def test_keys_that_cannot_be_hashed_stand_beside_those_that_can() -> None:
    store = opened(stores.timestamped_key_value("s", "json", "long"))
    windows = opened(stores.window("w", 100, 10, "json", "long", timestamped=True))
    keys: list[Any] = ["a", ["a"], {"a": 1}, 1, True, 1.0]
    for number, key in enumerate(keys):
        store.put(key, ValueAndTimestamp(number, 0))
        windows.put(key, ValueAndTimestamp(number, 0), 5)
    assert [store.get(key).value for key in keys] == list(range(6))
    assert [windows.fetch_one(key, 5).value for key in keys] == list(range(6))


def test_versions_are_valid_until_the_next_one() -> None:
    store = opened(stores.versioned("s", 20, "string", "string"))
    assert store.put("k", "A", 10) == IS_LATEST
    assert store.put("k", "B", 20) == IS_LATEST
    assert store.put("k", "C", 15) == 20
    assert [store.get("k", time).value for time in (14, 15, 19)] == ["A", "C", "C"]
    assert store.get("k")[:2] == ("B", 20)
    assert store.put("k", None, 17) == 20
    assert store.get("k", 18) is None
    assert store.put("k", "D", 40) == IS_LATEST
    assert (store.get("k", 20)[:2], store.get("k", 19)) == (("B", 20), None)
    assert store.put("k", "E", 20) == 40
    assert store.put("k", "E", 19) == NOT_PUT
    assert store.delete("k", 30)[:2] == ("E", 20)
    assert [(each.value, each.timestamp, each.valid_to) for each in store.versions("k")] == [
        ("D", 40, None),
        ("E", 20, 30),
    ]
    assert store.put("j", "F", 21) == IS_LATEST
    assert store.put("i", "G", 100) == IS_LATEST
    # 79 is before the history, where only the latest of a key can be read, and nothing deleted.
    assert [store.get("j", time) for time in (20, 21, 79)] == [None, ("F", 21, None), ("F", 21, None)]
    assert store.get("k", 39) is None
    assert store.delete("j", 79) is None
    assert store.get("j")[:2] == ("F", 21)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_versioned_store_forgets_deleted_keys_with_their_history(restarted: bool) -> None:
    spec = stores.versioned("s", 20, "string", "string")
    store = opened(spec)
    for number in range(100):
        store.put(f"k{number}", "A", number)
        store.put(f"k{number}", None, number + 1)
    store.put("again", None, 100)
    store.put("again", "B", 105)
    if restarted:
        store = opened(spec, entries=MemoryBytes(store.entries.entries()), observed=105)
    assert (store.get("k85", 85).value, store.get("k85", 86)) == ("A", None)
    store.put("other", "C", 200)
    assert (store.get("again").value, store.get("other").value, store.get("k99")) == ("B", "C", None)
    assert len(store.entries) == 2


def test_a_longer_key_between_the_entries_of_a_key_is_not_that_key() -> None:
    store = opened(stores.versioned("s", 1000, "string", "string"))
    store.put("k", "A", 10)
    store.put("k\x00", "other", 5)
    store.put("k\x00\x00\x00\x00\x00\x00\x00\x0a", "other", 5)
    assert store.get("k").value == "A"
    windows = opened(stores.window("w", 1000, 10, "string", "string"))
    windows.put("k", "A", 10)
    windows.put("k\x00", "other", 5)
    assert list(windows.fetch("k", 0, 1000)) == [(10, "A")]


@pytest.mark.parametrize("timestamped", [False, True])
def test_no_window_begins_before_1970(timestamped: bool) -> None:
    """A processor may ask for the window before the first one."""
    store = opened(stores.window("s", 30, 10, "string", "string", timestamped=timestamped))
    store.put("k", ValueAndTimestamp("v", 1) if timestamped else "v", 0)
    assert [store.fetch_one("k", start) is None for start in (-10, -1, 0)] == [True, True, False]
    assert [start for start, _ in store.fetch("k", -10, 10)] == [0]
    assert list(store.fetch("k", -10, -1)) == []


def test_window_stores_fetch_by_start_and_hide_what_is_older_than_the_retention() -> None:
    store = opened(stores.window("s", 30, 10, "string", "string"))
    for start in (20, 10, 30, 5):
        store.put("k", f"v{start}", start)
    store.put("j", "j10", 10)
    assert list(store.fetch("k", 10, 30)) == [(10, "v10"), (20, "v20"), (30, "v30")]
    assert [start for start, _ in store.backward_fetch("k", 0, 30)] == [30, 20, 10, 5]
    assert [key for key, _ in store.all()] == [
        Windowed("j", Window(10, 20)),
        *(Windowed("k", Window(start, start + 10)) for start in (5, 10, 20, 30)),
    ]
    store.put("k", "v40", 40)
    assert [start for start, _ in store.fetch("k", 0, 100)] == [20, 30, 40]
    assert store.fetch_one("k", 10) is None
    store.put("k", "late", 9)
    store.put("k", None, 20)
    assert [start for start, _ in store.fetch("k", 0, 100)] == [30, 40]


@pytest.mark.parametrize("seed", range(20))
def test_windows_with_cached_objects_are_those_of_a_store_without(seed: int) -> None:
    """A store with a changelog function caches nothing."""
    rng = Random(seed)
    spec = stores.window("s", 30, 10, "string", "string", timestamped=True)
    cached, plain = opened(spec), opened(spec, [])
    start = 0
    for number in range(400):
        start = max(0, start + rng.choice((0, 0, 0, 1, 7, -5, -40)))
        # Keys that are equal, but not always one object.
        key = "".join(("k", rng.choice("abc")))
        if rng.random() < 0.5:
            assert cached.fetch_one(key, start) == plain.fetch_one(key, start)
            if rng.random() < 0.3:
                key, start = "kd", max(0, start - rng.choice((0, 3)))
        if rng.random() < 0.8:
            value = None if rng.random() < 0.1 else ValueAndTimestamp(f"v{number}", number)
            cached.put(key, value, start)
            plain.put(key, value, start)
        assert cached.fetch_one(key, start) == plain.fetch_one(key, start)
        if number % 10 == 0:
            assert list(cached.all()) == list(plain.all())
            assert list(cached.fetch("ka", 0, 10_000)) == list(plain.fetch("ka", 0, 10_000))
            assert list(cached.fetch_closed(0, 10_000)) == list(plain.fetch_closed(0, 10_000))


def test_a_window_store_may_keep_every_value() -> None:
    store = opened(stores.window("s", 30, 10, "string", "string", retain_duplicates=True))
    store.put("k", "1", 5)
    store.put("k", "2", 5)
    store.put("k", None, 5)
    assert list(store.fetch("k", 0, 10)) == [(5, "1"), (5, "2")]


@pytest.mark.parametrize("timestamped", [False, True])
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 120), st.booleans()), max_size=40),
    st.integers(0, 130),
    st.integers(0, 60),
)
def test_kept_values_go_by_their_age_alone(
    timestamped: bool, puts: list[tuple[str, int, bool]], first: int, length: int
) -> None:
    """Also where the store is opened again between puts."""
    spec = stores.window("s", 30, 10, "string", "string", timestamped=timestamped, retain_duplicates=True)
    entries, cells = MemoryBytes(), dict[str, Cell]()

    def open_() -> Any:
        cell = lambda name, initial: cells.setdefault(name, Cell(initial))  # noqa: E731
        return make_store(spec, entries, (STRING, STRING), "topic", None, lambda: 77, cell)

    store, newest = open_(), -1
    taken: list[tuple[str, int, Any]] = []
    for number, (key, start, again) in enumerate(puts):
        value = ValueAndTimestamp(str(number), number) if timestamped else str(number)
        store.put(key, value, start)
        if start >= newest - 30:
            taken.append((key, start, value))
        newest = max(newest, start)
        if again:
            store = open_()
    shown = [each for each in taken if each[1] > newest - 30]
    for key in "ab":
        expected = sorted(
            ((start, value) for name, start, value in shown if name == key and first <= start <= first + length),
            key=lambda each: each[0],
        )
        assert list(store.fetch(key, first, first + length)) == expected
        assert list(store.backward_fetch(key, first, first + length)) == expected[::-1]
    assert sorted(value for _, value in store.all()) == sorted(value for _, _, value in shown)
    assert sorted(value for _, value in store.fetch_closed(max(newest - 29, 0), 200)) == sorted(
        value for _, _, value in shown
    )
    # What is older than the retention and an eighth of it is gone.
    assert len(entries) == sum(start >= newest // 3 * 3 - 30 for _, start, _ in taken)


@given(st.lists(st.one_of(st.just(None), st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", None])))))
def test_changes_make_the_entries_again_and_delete_only_what_was_told(
    steps: list[tuple[str, str | None] | None],
) -> None:
    """None: the changes are taken."""
    entries, told = MemoryBytes(), dict[bytes, bytes]()
    for step in [*steps, None]:
        if step is None:
            for key, value in entries.take_changes().items():
                if value is None:
                    del told[key]
                else:
                    told[key] = value
            assert told == entries.entries()
        elif step[1] is None:
            entries.delete(step[0].encode())
        else:
            entries.put(step[0].encode(), step[1].encode())


def test_sessions_are_found_by_end_and_start() -> None:
    store = opened(stores.session("s", 100, "string", "string"))
    for start, end in ((1, 30), (15, 20), (10, 50)):
        store.put(Windowed("k", Window(start, end)), f"{start}-{end}")
    assert [key.window for key, _ in store.find_sessions("k", 0, 100)] == [(15, 20), (1, 30), (10, 50)]
    assert [key.window for key, _ in store.find_sessions("k", 21, 9)] == [(1, 30)]
    assert [key.window for key, _ in store.backward_fetch("k")] == [(10, 50), (1, 30), (15, 20)]
    assert store.fetch_session("k", 15, 20) == "15-20"
    store.remove(Windowed("k", Window(15, 20)))
    assert store.fetch_session("k", 15, 20) is None


def test_sessions_of_a_range_of_keys_are_those_of_its_keys_and_both_ends() -> None:
    store = opened(stores.session("s", 100, "string", "string"))
    for key, start, end in (("a", 1, 30), ("ab", 2, 20), ("b", 3, 10), ("c", 4, 40)):
        store.put(Windowed(key, Window(start, end)), f"{key}{start}")
    found = {
        (low, high): [(key.key, key.window, value) for key, value in store.fetch_range(low, high)]
        for low, high in (("a", "b"), ("ab", None), (None, "ab"), (None, None), ("bb", "bc"))
    }
    a, ab, b, c = ("a", (1, 30), "a1"), ("ab", (2, 20), "ab2"), ("b", (3, 10), "b3"), ("c", (4, 40), "c4")
    assert {keys: sorted(of_keys) for keys, of_keys in found.items()} == {
        ("a", "b"): [a, ab, b],
        ("ab", None): [ab, b, c],
        (None, "ab"): [a, ab],
        (None, None): [a, ab, b, c],
        ("bb", "bc"): [],
    }
    assert sorted(store.all()) == sorted(store.fetch_range(None, None))


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_session_is_hidden_when_its_end_is_older_than_the_newest_by_the_retention(in_memory: bool) -> None:
    log: Logged = []
    store = opened(replace(stores.session("s", 100, "string", "string"), in_memory=in_memory), log)
    for start, end in ((5, 10), (11, 11), (90, 110)):
        store.put(Windowed("k", Window(start, end)), str(end))
    assert [key.window for key, _ in store.all()] == [(11, 11), (90, 110)]
    assert [key.window for key, _ in store.fetch("k")] == [(11, 11), (90, 110)]
    assert (store.fetch_session("k", 5, 10), store.fetch_session("k", 11, 11)) == (None, "11")
    # A late one is logged, as by Kafka Streams, and does not come back.
    store.put(Windowed("k", Window(1, 9)), "9")
    assert len(log) == 4
    assert store.fetch_session("k", 1, 9) is None
    # The scan for closed sessions of a persistent store still sees what its segment has.
    closed = [key.window for key, _ in store.find_closed(0, 110)]
    assert closed == ([(11, 11), (90, 110)] if in_memory else [(1, 9), (5, 10), (11, 11), (90, 110)])
    assert list(store.find_closed(111, 110)) == []
    # What is hidden for good takes no memory.
    store.put(Windowed("k", Window(200_000, 200_000)), "new")
    assert [key.window for key, _ in store.find_closed(0, 200_000)] == [(200_000, 200_000)]
    assert len(store.entries) == 2


def test_windows_of_a_range_of_keys_are_those_of_its_keys_and_both_ends() -> None:
    store = opened(stores.window("s", 30, 10, "string", "string"))
    for key, start in (("a", 10), ("ab", 20), ("b", 30), ("b", 10), ("c", 20)):
        store.put(key, f"{key}{start}", start)
    found = {
        asked: [(key.key, key.window.start, value) for key, value in store.fetch_range(*asked)]
        for asked in (("a", "b", 0, 99), ("ab", None, 11, 29), (None, "ab", 10, 20), (None, None, 30, 30))
    }
    assert found == {
        ("a", "b", 0, 99): [("a", 10, "a10"), ("ab", 20, "ab20"), ("b", 10, "b10"), ("b", 30, "b30")],
        ("ab", None, 11, 29): [("ab", 20, "ab20"), ("c", 20, "c20")],
        (None, "ab", 10, 20): [("a", 10, "a10"), ("ab", 20, "ab20")],
        (None, None, 30, 30): [("b", 30, "b30")],
    }
    assert store.fetch_one("b", 30) == "b30"
    assert store.fetch_one("b", 20) is None


def test_writes_are_logged_in_kafka_streams_form() -> None:
    log: Logged = []
    opened(stores.timestamped_key_value("a", "string", "long"), log).put("k", ValueAndTimestamp(5, 9))
    opened(stores.key_value("b", "string", "string"), log).put("k", None)
    opened(stores.window("c", 30, 10, "string", "string"), log).put("k", "v", 10)
    assert log == [
        ("a", b"k", LONG.serialize("", 5), 9),
        ("b", b"k", None, 77),
        ("c", b"k" + (10).to_bytes(8, "big") + bytes(4), b"v", 77, ()),
    ]


_keys = st.binary(min_size=1, max_size=3)


@given(
    st.dictionaries(_keys, _keys, max_size=20),
    st.lists(st.tuples(st.sampled_from(["put", "delete", "scan", "back"]), _keys, _keys), max_size=60),
)
def test_ordered_bytes_are_a_sorted_dict(model: dict[bytes, bytes], commands: list[tuple[str, bytes, bytes]]) -> None:
    ordered = MemoryBytes.of(dict(model))
    for command, one, other in commands:
        if command == "put":
            ordered.put(one, other)
            model[one] = other
        elif command == "delete":
            ordered.delete(one)
            model.pop(one, None)
        else:
            low, high = min(one, other), max(one, other)
            found = list(ordered.scan(low, high, command == "back"))
            assert found == sorted(((k, v) for k, v in model.items() if low <= k < high), reverse=command == "back")
    assert dict(ordered.scan(None, None)) == model == ordered.entries()


def test_large_maps_stay_sorted_while_they_are_scanned_and_changed() -> None:
    ordered = MemoryBytes()
    for number in range(5000):
        ordered.put((number * 7919 % 5000).to_bytes(2, "big"), b"v")
        if number % 50 == 0:
            assert next(iter(ordered.scan(None, None)))[0] == min(ordered.entries())
    seen: Iterator[tuple[bytes, bytes]] = ordered.scan(None, None)
    for place, (key, _) in enumerate(seen):
        assert key == (2 * place).to_bytes(2, "big")
        ordered.delete((2 * place + 1).to_bytes(2, "big"))
    assert len(ordered) == 2500
    assert (after(b"a\xff"), after(b"\xff")) == (b"b", None)


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_between_around_and_across_the_chunks_of_a_large_map(reverse: bool) -> None:
    """A chunk holds up to half a thousand keys: ranges that begin or end at its edges, or lie between two keys."""
    ordered, model = MemoryBytes(), {(3 * number).to_bytes(2, "big"): b"%d" % number for number in range(2000)}
    for key, value in model.items():
        ordered.put(key, value)
    edges = [0, 1, 2, 3, *range(762, 774), *range(1530, 1542), 3000, 3001, 5997, 5999, 6001, 65535]
    bounds = [None, *(edge.to_bytes(2, "big") for edge in edges)]
    keys = sorted(model)
    for low in bounds:
        for high in bounds:
            wanted = [key for key in keys if (low is None or low <= key) and (high is None or key < high)]
            if reverse:
                wanted.reverse()
            assert [key for key, _ in ordered.scan(low, high, reverse)] == wanted
