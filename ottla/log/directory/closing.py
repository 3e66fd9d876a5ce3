"""Closing many logs at a stop.

The threads of the pool do nothing but sync. At every call to the kernel Python hands the interpreter's lock on: while
each thread closed whole logs, that was 250 calls about the lock for one log.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future

from ottla.log import durability
from ottla.log.log import Log


def close_logs(logs: Iterable[Log], pool: Executor | None) -> list[BaseException]:
    """Close them; every one comes to its end, and then the failures are told."""
    failed: list[BaseException] = []
    begun: list[Log] = []
    for log in logs:
        if log.closed:
            continue
        log.closed = True
        try:
            if durability.begin_close(log):
                begun.append(log)
            else:
                durability.let_go(log)
        except OSError as error:
            failed.append(error)
    for log, synced in [(log, _on(pool, durability.sync_closed, log)) for log in begun]:
        failure = synced.exception()
        if failure is None:
            durability.let_go(log)
        else:
            failed.append(failure)
    return failed


def _on(pool: Executor | None, task: Callable[[Log], None], log: Log) -> Future[None]:
    """The task on the pool; done at once where there is no pool, or none any more as the interpreter ends."""
    if pool is not None:
        try:
            return pool.submit(task, log)
        except RuntimeError:
            pass
    done: Future[None] = Future()
    try:
        task(log)
    except OSError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    return done
