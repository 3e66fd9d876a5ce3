"""The archive of a bundle: bounded in bytes and time, with all text masked and a list of what is missing.

Rules:
- Each part is collected on its own thread and abandoned when its time is up: a part that hangs (a broker or a disk that
  does not answer) costs its own time only.
- A part that fails or is cut is listed with its error. Rows collected before a part was abandoned are kept.
- A part that the cluster or the node does not have (`Absent`) is listed as well, but the bundle is not partial for it.
- Only the owner can read the file. It never overwrites an existing file, and is removed when it cannot be finished.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from ottla.kernel.client_error import Unsupported
from ottla.kernel.error import KafkaError, OttlaError
from ottla.operations.bundle.mask import Mask

#: Seconds for one part, and bytes for one file.
_PART_SECONDS, _FILE_BYTES_MAX = 15.0, 8 << 20
#: Bytes that are kept for the list of contents.
_RESERVE = 64 << 10
_ERROR_CHARACTERS_MAX = 500


class Absent(OttlaError):
    """A part that the cluster or the node does not have, such as the stacks of a node that is not running."""


class Bundle:
    """A bundle being written to `path`; leaving the context writes the list of contents."""

    def __init__(self, path: Path, mask: Mask, *, bytes_max: int, seconds: float) -> None:
        """Create the file. Raises OttlaError when it exists, OSError when it cannot be created."""
        self.path = path
        self.mask = mask
        #: File name -> what it holds, and file name -> why it is missing or incomplete.
        self.contents: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        #: The names in `missing` that should be there.
        self.failed: set[str] = set()
        self._bytes_left = bytes_max - _RESERVE
        self._deadline = time.monotonic() + seconds
        self._root = path.name.removesuffix(".tar.gz")
        try:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError:
            raise OttlaError(f"{path} already exists; name another file with -o") from None
        self._gzip = gzip.GzipFile(fileobj=self._file, mode="wb")
        self._tar = tarfile.open(fileobj=self._gzip, mode="w")  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished = False
        try:
            if error is None:
                self._write("README.txt", self._readme().encode())
                self._write("missing.json", _json(self.mask.value(self.missing)))
                self._tar.close()
                self._gzip.flush()
                self._file.flush()
                finished = True
        finally:
            if not finished:
                self.path.unlink(missing_ok=True)
                self._discard()
            self._gzip.close()
            self._file.close()

    def _discard(self) -> None:
        """Send buffered output to /dev/null: closing must not fail on a full disk."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)

    def document(self, name: str, what: str, make: Callable[[], Any]) -> Any:
        """Add a part that is one JSON document. Returns what `make` returned, or None when it failed."""
        items = self._made(name, lambda: [make()])
        if items:
            self._add(name, what, _json(self.mask.value(items[0])))
        return items[0] if items else None

    def text(self, name: str, what: str, make: Callable[[], str]) -> str | None:
        """Add a part that is text; a text that is too long keeps its end. Returns the masked text, or None."""
        items = self._made(name, lambda: [make()])
        if not items:
            return None
        masked = self.mask.text(items[0])
        self._add(name, what, masked.encode(errors="replace"), keep_end=True)
        return masked

    def rows(self, name: str, what: str, make: Callable[[], Iterable[Any]]) -> None:
        """Add a part of many rows, one JSON document a line; rows that do not fit are left out."""
        items = self._made(name, make)
        if items is None:
            return
        lines: list[bytes] = []
        size, room = 0, min(_FILE_BYTES_MAX, self._bytes_left)
        for item in items:
            line = json.dumps(self.mask.value(item), ensure_ascii=False, default=str).encode(errors="replace") + b"\n"
            if size + len(line) > room:
                self.fail(name, f"cut: {len(lines)} of {len(items)} rows fit within --max-bytes")
                break
            lines.append(line)
            size += len(line)
        self._add(name, what, b"".join(lines))

    def fail(self, name: str, why: object) -> None:
        """List a part as missing: it failed, unless `why` is `Absent`."""
        self.missing[name] = self.mask.text(str(why))[:_ERROR_CHARACTERS_MAX]
        if not isinstance(why, Absent):
            self.failed.add(name)

    def _made(self, name: str, make: Callable[[], Iterable[Any]]) -> list[Any] | None:
        """Return all items that `make` yields in time; None when it failed before the first."""
        seconds = min(_PART_SECONDS, self._deadline - time.monotonic())
        if seconds <= 0:
            self.fail(name, "not collected: the time for the bundle is over (--timeout)")
            return None
        items: list[Any] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                for item in make():
                    items.append(item)  # noqa: PERF402 - items are kept also when the time is up
            except Exception as error:  # any failure: the other parts go on
                failure.append(error)

        thread = Thread(target=work, name=f"bundle {name}", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self.fail(name, f"took longer than {seconds:.0f} s")
        elif failure:
            error = failure[0]
            told = isinstance(error, OttlaError | KafkaError | OSError)
            self.fail(name, _absent(error) or (error if told else f"{type(error).__name__}: {error}"))
        elif not items:
            return items
        return list(items) or None

    def _add(self, name: str, what: str, content: bytes, *, keep_end: bool = False) -> None:
        room = min(_FILE_BYTES_MAX, self._bytes_left)
        if len(content) > room:
            if not keep_end or room <= 0:
                return self.fail(name, f"too long: {len(content)} bytes (--max-bytes, and {_FILE_BYTES_MAX} a file)")
            self.fail(name, f"cut: only the last {room} of {len(content)} bytes")
            content = content[-room:]
        self._bytes_left -= len(content)
        self.contents[name] = what
        self._write(name, content)

    def _write(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(f"{self._root}/{name}")
        entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
        self._tar.addfile(entry, io.BytesIO(content))

    def _readme(self) -> str:
        return "\n".join(_readme(self.contents, self.missing)) + "\n"


def _readme(contents: dict[str, str], missing: dict[str, str]) -> Iterator[str]:
    yield "The output of `ottla debug bundle`. Secrets are masked as [hidden]; check the files before you send them."
    yield ""
    width = max(map(len, contents), default=0)
    for name, what in contents.items():
        yield f"{name:<{width}}  {what}"
    yield ""
    yield "Missing or incomplete:" if missing else "Nothing is missing."
    for name, why in missing.items():
        yield f"  {name}: {why}"


def _absent(error: BaseException) -> Absent | None:
    if isinstance(error, Unsupported):
        return Absent(str(error))
    return error if isinstance(error, Absent) else None


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n").encode(errors="replace")
