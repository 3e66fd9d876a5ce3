"""A second thread that polls meanwhile is refused."""

import threading

import pytest

import ottla
from ottla.client import Consumer, ShareConsumer
from ottla.client.connection.one_thread import OneThread
from ottla.kernel.error import OttlaError


@pytest.mark.parametrize(
    ("kind", "poll", "told"),
    [
        (Consumer, "poll", "another thread is polling this consumer: give each thread a consumer of its own"),
        (Consumer, "poll_table", "another thread is polling this consumer: give each thread a consumer of its own"),
        (ShareConsumer, "poll", "another thread is polling this share consumer: give each thread a share consumer of"),
    ],
)
def test_two_threads_do_not_poll_at_once(kind: type, poll: str, told: str) -> None:
    failed: list[BaseException] = []
    over = threading.Event()

    def polls() -> None:
        try:
            for _ in range(10):
                if over.is_set():
                    return
                getattr(consumer, poll)(0.2)
        except OttlaError as error:
            failed.append(error)
        finally:
            over.set()

    with ottla.Node() as node:
        node.create_topic("in")
        with kind(node.bootstrap_servers, group_id="g") as consumer:
            consumer.subscribe(["in"])
            other = threading.Thread(target=polls)
            other.start()
            polls()
            other.join()
            assert len(failed) == 1
            assert str(failed[0]).startswith(told)
            # The consumer goes on, also in another thread than before.
            assert len(getattr(consumer, poll)(0)) == 0


def test_a_thread_may_take_again_what_it_has() -> None:
    one = OneThread("consumer")
    with one, one:
        pass
    with one:
        pass
