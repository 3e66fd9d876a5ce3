"""The parts of a bundle from one machine: its versions, a node's directories and files, and its process if it runs.

Rules:
- Files are read and never changed. The memory file for thread stacks is emptied (`ottla.operations.bundle.process`).
- No file with records is read: only names and sizes are listed.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ottla.host.config_providers import server_settings
from ottla.kernel.error import OttlaError
from ottla.operations.bundle.archive import Absent, Bundle
from ottla.operations.bundle.process import LocalNode, NodeFiles, find, stacks, state
from ottla.settings.properties import read

_TAIL_BYTES = 2 << 20
_SMALL_BYTES_MAX = 256 << 10
_FILES_MAX = 100_000
_SLOW = "slow request"
#: The name at the head of a requirement: `click` of `click>=8.1`.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
#: Text files of a log directory, by the ends of their names.
_TEXTS = ("meta.properties", "-checkpoint", "quorum-state")


def versions() -> dict[str, Any]:
    """Return the versions of Ottla, Python and the libraries, and facts about the machine."""
    import ssl

    names = sorted({name[0] for requirement in metadata.requires("ottla") or () if (name := _NAME.match(requirement))})
    return {
        "ottla": _version("ottla"),
        "python": sys.version,
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "system": platform.platform(),
        "kernel": platform.uname()._asdict(),
        "os": _os_release(),
        "openssl": ssl.OPENSSL_VERSION,
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "open_files_limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "libraries": {name: installed for name in names if (installed := _version(name)) is not None},
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def add_node(bundle: Bundle, directories: Sequence[str], properties: str | None, log: str | None) -> None:
    """Add all parts of the node with these log directories or this server.properties, and of its process if it runs."""
    texts = _add_settings(bundle, properties) if properties else None
    if not directories and texts is not None:
        directories = _directories(bundle, texts)
    running: list[LocalNode] = []
    if directories:
        what = "the running process and its command line"
        bundle.document("node/process.json", what, lambda: _process(bundle, running, directories))
    files = running[0].files if running else NodeFiles(None, None)
    if running:
        pid = running[0].pid
        bundle.document("node/process-state.json", "threads, memory and limits of the process", lambda: state(pid))
        bundle.text("node/stacks.txt", "the stack of each thread", lambda: stacks(pid))
    if texts is None and files.properties:
        _add_settings(bundle, files.properties)
    _add_log(bundle, log or files.log)
    for number, directory in enumerate(directories):
        _add_directory(bundle, Path(directory), f"node/directory-{number}")


def _process(bundle: Bundle, running_nodes: list[LocalNode], directories: Sequence[str]) -> dict[str, Any]:
    running = find(directories)
    if running is None:
        raise Absent("the node is not running, or this user cannot see its process; so there are no stacks")
    bundle.mask.learn_settings(dict(word.split("=", 1) for word in running.command if "=" in word))
    running_nodes.append(running)
    return {"pid": running.pid, "command": running.command, **running.files._asdict()}


def _add_settings(bundle: Bundle, path: str) -> Mapping[str, str] | None:
    texts: dict[str, str] = {}

    def given() -> str:
        texts.update(read(_small(Path(path))))
        bundle.mask.learn_settings(texts)
        return "".join(f"{name}={bundle.mask.setting(name, value)}\n" for name, value in texts.items())

    bundle.text("node/server.properties", f"the settings in {path}", given)
    if texts:
        bundle.document("node/settings.json", "all settings, with defaults", lambda: _effective(bundle, texts))
    return texts or None


def _effective(bundle: Bundle, texts: Mapping[str, str]) -> list[dict[str, Any]]:
    settings = server_settings(texts)
    bundle.mask.learn_settings(settings.file_texts())
    declared = [
        {"name": name, "value": bundle.mask.setting(name, settings.text(name)), "source": settings.source_of(name).name}
        for name in settings.declared()
    ]
    more = [{"name": name, "value": bundle.mask.setting(name, texts.get(name))} for name in settings.undeclared()]
    return [*declared, *more]


def _directories(bundle: Bundle, texts: Mapping[str, str]) -> list[str]:
    try:
        return server_settings(texts).directories
    except OttlaError as error:
        bundle.fail("node/directory-0", f"the settings name no log directory: {error}")
        return []


def _add_log(bundle: Bundle, path: str | None) -> None:
    if path is None:
        return bundle.fail("node/log.txt", Absent("the node's log file is unknown; name it with --node-log"))
    tail = bundle.text("node/log.txt", f"the last lines of {path}", lambda: _tail(Path(path)))
    if tail is not None:
        slow = [line for line in tail.splitlines(keepends=True) if _SLOW in line]
        bundle.text("node/slow-requests.txt", "the lines about slow requests", lambda: "".join(slow))


def _add_directory(bundle: Bundle, directory: Path, name: str) -> None:
    bundle.document(f"{name}/disk.json", f"free space on the disk of {directory}", lambda: _disk(directory))
    bundle.text(f"{name}/files.txt", "all files: bytes, modification time, name", lambda: "".join(_files(directory)))
    try:
        texts = sorted(path for path in _texts(directory))
    except OSError as error:
        return bundle.fail(f"{name}/meta.properties", error)
    for path in texts:
        _add_copy(bundle, path, f"{name}/{path.relative_to(directory)}")


def _add_copy(bundle: Bundle, path: Path, name: str) -> None:
    bundle.text(name, "copied from the directory", lambda: _small(path))


def _texts(directory: Path) -> Iterator[Path]:
    places = [directory, directory / "__cluster_metadata-0"]
    for place in places:
        if place == directory or place.is_dir():
            yield from (path for path in place.iterdir() if path.name.endswith(_TEXTS))


def _disk(directory: Path) -> dict[str, Any]:
    usage, volume = shutil.disk_usage(directory), os.statvfs(directory)
    return {
        "path": str(directory.absolute()),
        "total_bytes": usage.total,
        "free_bytes": usage.free,
        "inodes": volume.f_files,
        "inodes_free": volume.f_ffree,
        "file_system": _file_system(directory.resolve()),
    }


def _file_system(path: Path) -> str | None:
    """Return the type and options of the mount that holds a path, from Linux's /proc/self/mounts."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    holding = [mount for mount in mounts if path.is_relative_to(mount[1])]
    best = max(holding, key=lambda mount: len(mount[1]), default=None)
    return None if best is None else f"{best[2]} {best[3]}"


def _files(directory: Path) -> Iterator[str]:
    left = _FILES_MAX
    for path, _, names in os.walk(directory, onerror=_raise):
        for name in sorted(names):
            left -= 1
            if left < 0:
                yield f"... and more: only the first {_FILES_MAX} files are listed\n"
                return
            full = os.path.join(path, name)
            try:
                status = os.lstat(full)
            except OSError as error:  # a running node deletes files
                yield f"{'?':>14}  {error.strerror}  {os.path.relpath(full, directory)}\n"
                continue
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.st_mtime))
            yield f"{status.st_size:>14}  {at}  {os.path.relpath(full, directory)}\n"


def _raise(error: OSError) -> None:
    raise error


def _small(path: Path) -> str:
    return _read(path, _SMALL_BYTES_MAX, from_end=False)


def _tail(path: Path) -> str:
    """Return the last whole lines of a file."""
    text = _read(path, _TAIL_BYTES, from_end=True)
    return text.partition("\n")[2] if len(text.encode()) >= _TAIL_BYTES else text


def _read(path: Path, bytes_max: int, *, from_end: bool) -> str:
    # Reading a pipe would block.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OttlaError(f"{path} is not a regular file")
    with path.open("rb") as file:
        if from_end:
            file.seek(max(0, path.stat().st_size - bytes_max))
        return file.read(bytes_max).decode(errors="replace")
