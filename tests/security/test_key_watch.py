"""When the keys of a provider are looked at: by a thread, in turns with its pauses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.key_set import NoSuchKey
from ottla.security.key_watch import KeySource, KeyWatch
from tests.security.token_scene import Provider

_ADDRESS = "https://provider.example/keys"


def _source(url: str, refresh_ms: int = 3_600_000, backoff_ms: int = 100, backoff_max_ms: int = 10_000) -> KeySource:
    return KeySource(url, None, refresh_ms, backoff_ms, backoff_max_ms)


@pytest.fixture
def provider() -> Provider:
    return Provider()


class _Turns:
    """What the thread does, until it has done five things."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(KeyWatch, "_pause", lambda watch: self._note(watch, "pause"))
        monkeypatch.setattr(KeyWatch, "_look", lambda watch: self._note(watch, "look"))

    def _note(self, watch: KeyWatch, what: str) -> None:
        self.done.append(what)
        if len(self.done) == 5:
            watch.close()


@pytest.mark.parametrize(
    ("at_start", "turns"),
    [
        # What was read at the start is not read again at once.
        (True, ["pause", "look", "pause", "look", "pause"]),
        (False, ["look", "pause", "look", "pause", "look"]),
    ],
)
def test_the_thread_looks_and_pauses_in_turns_and_ends_when_it_is_told(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_start: bool, turns: list[str]
) -> None:
    seen = _Turns(monkeypatch)
    watch = KeyWatch(_source(provider.write(tmp_path / "keys.json")), at_start=at_start)
    watch._thread.join(20)
    assert not watch._thread.is_alive()
    assert seen.done == turns


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///a/b.json", "/a/b.json"),
        ("FILE:///a%20b", "/a b"),
        ("file:/a/b", "/a/b"),
        ("https://provider.example/a", None),
        ("HTTP://provider.example/a", None),
    ],
)
def test_a_file_is_named_by_an_address(url: str, path: str | None) -> None:
    assert _source(url).path == path
    if path is None:
        assert _source(url).stamp() is None, "an address shows no change but by its answer"


def test_a_watch_that_is_closed_between_two_looks_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyWatch, "_look", lambda watch: None)
    watch = KeyWatch(_source(_ADDRESS, backoff_max_ms=1), at_start=False)
    watch.close()
    watch._thread.join(20)
    assert not watch._thread.is_alive()


class _Waits:
    """An event that is never set, and how long it was waited for, in seconds."""

    def __init__(self, waits: list[tuple[str, float]], name: str) -> None:
        self._waits, self._name = waits, name

    def wait(self, seconds: float) -> None:
        self._waits.append((self._name, seconds))


@pytest.mark.parametrize(
    ("url", "failures", "waits"),
    [
        ("file:///keys", 0, [("closed", 1.0)]),
        # A token with an unknown key ends the second wait, never the first.
        (_ADDRESS, 0, [("closed", 10.0), ("wanted", 3590.0)]),
        ("file:///keys", 1, [("closed", 0.2)]),
        (_ADDRESS, 1, [("closed", 0.2)]),
        (_ADDRESS, 2, [("closed", 0.4)]),
        (_ADDRESS, 6, [("closed", 6.4)]),
        (_ADDRESS, 7, [("closed", 10.0)]),
        (_ADDRESS, 10_000, [("closed", 10.0)]),
    ],
)
def test_a_pause_is_that_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, url: str, failures: int, waits: list[tuple[str, float]]
) -> None:
    pause = KeyWatch._pause
    _Turns(monkeypatch)
    watch = KeyWatch(_source(url), at_start=False)
    watch._thread.join(20)
    found: list[tuple[str, float]] = []
    watch._closed, watch._wanted = cast(Any, _Waits(found, "closed")), cast(Any, _Waits(found, "wanted"))
    watch._failures = failures
    pause(watch)
    assert [name for name, _ in found] == [name for name, _ in waits]
    assert [seconds for _, seconds in found] == pytest.approx([seconds for _, seconds in waits])


def test_a_pause_is_never_longer_than_the_time_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = KeyWatch._pause
    _Turns(monkeypatch)
    watch = KeyWatch(_source(_ADDRESS, refresh_ms=4000), at_start=False)
    watch._thread.join(20)
    found: list[tuple[str, float]] = []
    watch._closed, watch._wanted = cast(Any, _Waits(found, "closed")), cast(Any, _Waits(found, "wanted"))
    pause(watch)
    assert found == [("closed", 4.0), ("wanted", 0.0)]


def test_a_look_reads_what_is_new_counts_failures_and_keeps_the_keys_meanwhile(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = KeyWatch._look
    _Turns(monkeypatch)
    path = tmp_path / "keys.json"
    watch = KeyWatch(_source(provider.write(path, "rsa")), at_start=True)
    watch._thread.join(20)
    old, new = provider.token("rsa"), provider.token("new")
    watch._wanted.clear()
    assert b"ann" in watch.payload(old)
    assert not watch._wanted.is_set()
    with pytest.raises(NoSuchKey):
        watch.payload(new)
    assert watch._wanted.is_set(), "an address is asked at once"
    look(watch)
    assert not watch._wanted.is_set()
    for failures, text in ((1, b"{"), (2, b'{"keys": 1}'), (3, b" " * ((1 << 20) + 1))):
        path.write_bytes(text)
        look(watch)
        assert watch._failures == failures
        assert b"ann" in watch.payload(old), "the keys from before hold"
    path.unlink()
    look(watch)
    assert watch._failures == 4
    provider.write(path, "new")
    look(watch)
    assert watch._failures == 0
    assert b"ann" in watch.payload(new)
    # The same file, by its stamp, is not read again.
    status = os.stat(path)
    text = path.read_bytes()
    path.write_bytes(b" " * len(text))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    look(watch)
    assert watch._failures == 0


def test_keys_that_cannot_be_had_at_the_start_stop_it(tmp_path: Path) -> None:
    url = (tmp_path / "none.json").as_uri()
    with pytest.raises(OttlaError, match=r"jwks\.endpoint\.url=file:.*none\.json gives no keys: .*No such file"):
        KeyWatch(_source(url), at_start=True)
