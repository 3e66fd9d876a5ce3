"""Closing many logs at a stop.

Where a directory has many to be synced, its volume is synced instead of each file, if the disk takes that (decision
0640). Else the threads of the pool sync log by log, and do nothing but that: at every call to the kernel Python hands
the interpreter's lock on. While each thread closed whole logs, that was 250 calls about the lock for one log.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import TypeVar

from ottla.log import durability
from ottla.log.checkpoint import write_beside
from ottla.log.directory.directory import Directory
from ottla.log.log import Log
from ottla.log.path import EPOCHS

#: So many logs of one directory are synced together.
TOGETHER_MIN = 64

_Result = TypeVar("_Result")


def close_logs(logs: Iterable[tuple[Log, Directory]], pool: Executor | None) -> list[BaseException]:
    """Close them; every one comes to its end, and then the failures are told."""
    failed: list[BaseException] = []
    begun: dict[Directory, list[Log]] = {}
    for log, directory in logs:
        if log.closed:
            continue
        log.closed = True
        try:
            if durability.begin_close(log):
                begun.setdefault(directory, []).append(log)
            else:
                durability.let_go(log)
        except OSError as error:
            failed.append(error)
    together = [
        (directory, _on(pool, partial(sync_together, directory, of_one)))
        for directory, of_one in begun.items()
        if len(of_one) >= TOGETHER_MIN
    ]
    for directory, done in together:
        if done.result():
            for log in begun.pop(directory):
                durability.let_go(log)
    alone = [(log, _on(pool, partial(durability.sync_closed, log))) for of_one in begun.values() for log in of_one]
    for log, synced in alone:
        failure = synced.exception()
        if failure is None:
            durability.let_go(log)
        else:
            failed.append(failure)
    return failed


def sync_together(directory: Directory, logs: Sequence[Log]) -> bool:
    """Sync logs of one directory that are being closed, by syncing its volume. It may run on a thread.

    False when the volume does not take that, or failed: then every log is as dirty as it was, and is to be synced
    alone, which tells whose file it is.
    """
    lock = directory.lock
    try:
        if lock is None or not lock.covers([log.active.file for log in logs]):
            return False
        # As everywhere, a file's content is durable before it gets its name.
        renames = []
        for log in logs:
            if log.epochs_text is not None:
                path = f"{log.path}/{EPOCHS}"
                renames.append((log, write_beside(log.disk, path, log.epochs_text, sync=False), path))
        lock.sync_volume()
        for log, beside, path in renames:
            # The name is durable only if the rest of this succeeds.
            log.directory_dirty = True
            log.disk.rename(beside, path)
        if renames:
            lock.sync_volume()
    except OSError:
        return False
    for log in logs:
        log.epochs_text, log.directory_dirty, log.name_dirty = None, False, False
        log.snapshots.synced()
        log.generation_synced = log.generation
        log.synced(log.end_offset)
    return True


def _on(pool: Executor | None, task: Callable[[], _Result]) -> "Future[_Result]":
    """The task on the pool; done at once where there is no pool, or none any more as the interpreter ends."""
    if pool is not None:
        try:
            return pool.submit(task)
        except RuntimeError:
            pass
    done: Future[_Result] = Future()
    try:
        done.set_result(task())
    except OSError as error:
        done.set_exception(error)
    return done
