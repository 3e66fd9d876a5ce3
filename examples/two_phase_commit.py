"""A transaction over PostgreSQL and a topic, decided by PostgreSQL, with workers that are killed at every step.

    python examples/two_phase_commit.py postgresql://...      (pip install psycopg; max_prepared_transactions above 0)

A transfer changes two accounts in the database and sends an event. Both sides are prepared, then COMMIT PREPARED in
PostgreSQL decides (KIP-939). After a kill, the next worker finds the state of both sides and completes them alike: a
committed row means commit, a transaction that is only prepared is committed now, and no trace means abort.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg

import ottla
from ottla.client import Consumer, PreparedTransaction, Producer, TopicPartition

TOPIC, NAME, TRANSFERS = "transfers", "bank", 60
#: The steps of a transfer; a worker may be killed after each.
STEPS = ("sent", "changed", "prepared in Kafka", "prepared in PostgreSQL", "decided", "completed")
SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


def open_database(address: str) -> Any:
    return psycopg.connect(address, autocommit=True)


def make_tables(database: Any) -> None:
    database.execute("CREATE TABLE account (name text PRIMARY KEY, cents bigint NOT NULL)")
    database.execute("CREATE TABLE transfer (number int PRIMARY KEY, prepared text UNIQUE NOT NULL)")
    database.execute("INSERT INTO account VALUES ('Ada', 100000), ('Grace', 100000)")


def recover(database: Any, producer: Producer) -> None:
    """Complete the previous worker's transaction on both sides."""
    left = producer.init_transactions(keep_prepared=True)
    waiting = [gid for (gid,) in database.execute("SELECT gid FROM pg_prepared_xacts")]
    for gid in waiting:
        database.execute(f"COMMIT PREPARED '{gid}'")
    if left is not None:
        decided = database.execute("SELECT 1 FROM transfer WHERE prepared = %s", [str(left)]).fetchone()
        producer.complete_transaction(left if decided else PreparedTransaction())


def transfer(database: Any, producer: Producer, number: int, step: Callable[[str], None]) -> None:
    """Make a transfer on both sides or on neither."""
    cents = number * 7 % 500
    producer.begin_transaction()
    producer.send(TOPIC, f"{number}:{cents}")
    step("sent")
    database.execute("BEGIN")
    database.execute("UPDATE account SET cents = cents - %s WHERE name = 'Ada'", [cents])
    database.execute("UPDATE account SET cents = cents + %s WHERE name = 'Grace'", [cents])
    step("changed")
    prepared = producer.prepare_transaction()
    step("prepared in Kafka")
    database.execute("INSERT INTO transfer VALUES (%s, %s)", [number, str(prepared)])
    database.execute(f"PREPARE TRANSACTION '{prepared}'")
    step("prepared in PostgreSQL")
    database.execute(f"COMMIT PREPARED '{prepared}'")
    step("decided")
    producer.complete_transaction(prepared)
    step("completed")


def work(servers: str, address: str, dies_after: tuple[int, str] | None) -> None:
    """A worker: recover, then make the remaining transfers. It is killed after the given transfer and step."""
    left = TRANSFERS if dies_after is None else dies_after[0]
    with open_database(address) as database:
        producer = Producer(servers, transactional_id=NAME, transaction_two_phase_commit_enable=True)
        recover(database, producer)
        (done,) = database.execute("SELECT count(*) FROM transfer").fetchone()

        def step(name: str) -> None:
            if dies_after is not None and left <= 0 and name == dies_after[1]:
                os.kill(os.getpid(), signal.SIGKILL)

        for number in range(done, TRANSFERS):
            left -= 1
            transfer(database, producer, number, step)
        producer.close()


def main(servers: str, address: str) -> None:
    draw = random.Random(11)
    deaths = [(draw.randrange(1, 4), step) for step in STEPS for _ in range(2)]
    spawn = multiprocessing.get_context("spawn")
    for death in [*deaths, None]:
        worker = spawn.Process(target=work, args=(servers, address, death))
        worker.start()
        worker.join()
        assert worker.exitcode in (0, -signal.SIGKILL), f"a worker ended with {worker.exitcode}"
        print(f"worker: {'killed when ' + death[1] if worker.exitcode and death else 'done'}")
    with open_database(address) as database:
        balances = dict(database.execute("SELECT name, cents FROM account").fetchall())
    events = read(servers)
    moved = sum(int(event.split(":")[1]) for event in events)
    print(f"{len(events)} events, {len(set(events))} different, {moved} cents; balances {balances}")
    exact = (
        len(events) == len(set(events)) == TRANSFERS
        and balances["Grace"] - 100_000 == moved == 100_000 - balances["Ada"]
    )
    print("exact" if exact else "WRONG")
    assert exact


def read(servers: str) -> list[str]:
    """Every committed event."""
    partition = TopicPartition(TOPIC, 0)
    with Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end, found = consumer.end_offsets([partition])[partition], list[str]()
        while consumer.position(partition) < end:
            found += [record.value.decode() for record in consumer.poll(1)]
        return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} postgresql://user@host/database")
    with contextlib.ExitStack() as stack:
        make_tables(stack.enter_context(open_database(sys.argv[1])))
        node = stack.enter_context(ottla.Node(settings=SETTINGS))
        main(node.bootstrap_servers, sys.argv[1])
