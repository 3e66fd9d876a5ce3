"""Close many logs at a shutdown.

If a directory has many logs to sync, its volume is synced instead of each file, provided that the disk supports it
(decision 0640). Otherwise the threads of the pool sync log by log and do nothing else: Python releases the GIL at every
system call, and threads that closed whole logs made 250 calls for the GIL per log.
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

#: From this many logs on, a directory's logs are synced together.
VOLUME_SYNC_LOGS_MIN = 64

_Result = TypeVar("_Result")


def close_logs(
    logs: Iterable[tuple[Log, Directory]], pool: Executor | None
) -> dict[Directory, tuple[Log, BaseException]]:
    """Close all logs, also after a failure; the first failure of each directory, and its log."""
    failed: dict[Directory, tuple[Log, BaseException]] = {}
    begun: dict[Directory, list[Log]] = {}
    for log, directory in logs:
        if log.closed:
            continue
        log.closed = True
        try:
            if durability.begin_close(log):
                begun.setdefault(directory, []).append(log)
            else:
                durability.close_files(log)
        except OSError as error:
            failed.setdefault(directory, (log, error))
    together = [
        (directory, _submit(pool, partial(sync_volume_of, directory, directory_logs)))
        for directory, directory_logs in begun.items()
        if len(directory_logs) >= VOLUME_SYNC_LOGS_MIN
    ]
    for directory, done in together:
        if done.result():
            for log in begun.pop(directory):
                durability.close_files(log)
    alone = [
        (directory, log, _submit(pool, partial(durability.sync_closed, log)))
        for directory, directory_logs in begun.items()
        for log in directory_logs
    ]
    for directory, log, synced in alone:
        failure = synced.exception()
        if failure is None:
            durability.close_files(log)
        else:
            failed.setdefault(directory, (log, failure))
    return failed


def sync_volume_of(directory: Directory, logs: Sequence[Log]) -> bool:
    """Sync logs of one directory that are being closed by syncing its volume. May run on a thread.

    False if the volume does not support that or the sync failed: then every log is as dirty as before and must be
    synced alone, which shows whose file fails.
    """
    lock = directory.lock
    try:
        if lock is None or not lock.covers([log.active.file for log in logs]):
            return False
        # Make the contents durable before the renames.
        renames = []
        for log in logs:
            if log.epoch_checkpoint_text is not None:
                path = f"{log.path}/{EPOCHS}"
                renames.append((log, write_beside(log.disk, path, log.epoch_checkpoint_text, sync=False), path))
        lock.sync_volume()
        for log, beside, path in renames:
            log.disk.rename(beside, path)
        if renames:
            # Only now the renames are durable. If this fails, each log writes its epochs again.
            lock.sync_volume()
    except OSError:
        return False
    for log in logs:
        log.generation_synced = log.generation
        log.synced(log.end_offset)
    return True


def _submit(pool: Executor | None, task: Callable[[], _Result]) -> "Future[_Result]":
    """Run the task on the pool, or at once if there is no pool or the interpreter has shut it down."""
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
