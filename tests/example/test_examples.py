"""Every example runs as it stands, as a program, and what it prints is right: each checks its own figures."""

import logging
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import ottla
from ottla.client import Consumer, Producer, TopicPartition

ROOT = Path(__file__).parents[2]
PACKAGE_LOG = Path("/var/log/dpkg.log")


def run(example: str, *arguments: str) -> str:
    """What it prints."""
    command = [sys.executable, "-W", "error::ResourceWarning", str(ROOT / "examples" / f"{example}.py"), *arguments]
    where = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=ROOT, env=where, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_hello_reads_what_it_wrote() -> None:
    assert sorted(re.findall(r"read +'(\w+)'", run("hello"))) == ["Ahoj", "Bonjour", "Hallo", "Hello"]


def test_an_example_takes_a_running_cluster(ottla_node: ottla.Node) -> None:
    run("hello", ottla_node.bootstrap_servers)
    with Consumer(ottla_node.bootstrap_servers) as consumer:
        ends = consumer.end_offsets([TopicPartition("greetings", 0), TopicPartition("greetings", 1)])
    assert sum(ends.values()) == 4


def test_orders_come_back_as_columns() -> None:
    printed = run("columns")
    assert "sent 100,000 orders" in printed
    # id / 4 for every third id, from 0, 1 and 2.
    for name, first, count in (("ada", 0, 33_334), ("bob", 1, 33_333), ("cy", 2, 33_333)):
        assert f"{name}: {count:,} orders, {sum(range(first, 100_000, 3)) / 4:,.2f} in all" in printed


def test_each_request_has_its_reply() -> None:
    printed = run("request_reply")
    assert re.findall(r"costs +([\d.]+)", printed) == ["3.2", "32.5", "35.4"]
    assert "500 requests at once" in printed


def test_the_sink_counts_each_payment_once_in_sqlite() -> None:
    printed = run("database_sink")
    assert printed.count("crashed") == 4
    assert printed.count("exact") == 4
    assert "WRONG" not in printed


@pytest.mark.interop
def test_the_sink_counts_each_payment_once_in_postgresql(postgresql: str) -> None:
    printed = run("database_sink", postgresql)
    assert (printed.count("crashed"), printed.count("exact")) == (4, 4)


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_a_transfer_is_on_both_sides_or_on_neither_though_workers_are_killed(postgresql: str) -> None:
    printed = run("two_phase_commit", postgresql)
    assert printed.count("killed when") == 12
    assert "60 events, 60 different" in printed
    assert "exact" in printed


def test_every_page_view_is_counted_once_though_a_worker_leaves() -> None:
    printed = run("activity")
    assert "ann leaves" in printed
    assert "20,000 views sent, 20,000 counted" in printed


def test_transactions_leave_one_invoice_for_each_order() -> None:
    printed = run("transactions")
    assert printed.count("died with") == 4
    seen = re.search(r"read_uncommitted sees ([\d,]+) invoices", printed)
    assert seen is not None
    assert int(seen[1].replace(",", "")) > 2000, "what was aborted is in the log"
    assert "read_committed sees 2,000, one for each" in printed


def real_log(directory: Path) -> Path:
    """What a node and its clients say of themselves while they work."""
    path = directory / "node.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("ottla")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with ottla.Node() as node:
            for _ in range(20):
                with Producer(node.bootstrap_servers) as producer:
                    producer.send("t", b"v").result(30)
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
    return path


@pytest.mark.parametrize("log", ["node", *(["packages"] if PACKAGE_LOG.exists() else [])])
def test_every_line_of_a_real_log_is_counted(log: str, tmp_path: Path) -> None:
    path = PACKAGE_LOG if log == "packages" else real_log(tmp_path)
    days = Counter(re.findall(r"^(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d\S* +\S", path.read_text(), re.MULTILINE))
    assert days.total() > 20
    printed = run("log_aggregation", str(path))
    assert f"{days.total():,} lines of" in printed
    counted = re.findall(r"^  (\d{4}-\d\d-\d\d) +([\d,]+) ", printed, re.MULTILINE)
    assert {day: int(number.replace(",", "")) for day, number in counted} == days


def test_the_readme_names_every_example() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"examples/{path.name}" not in readme] == []


def test_words_are_counted_without_a_broker() -> None:
    printed = run("word_count")
    assert "Sub-topology: 1" in printed
    assert {"to 3", "be 3", "question 1"} <= set(printed.splitlines())


def test_fraud_is_found_by_three_rules_and_adds_up_to_a_score() -> None:
    assert run("card_fraud").splitlines() == [
        "alerts 78, fraud 76, precision 0.97, recall 1.00",
        "accounts reported 40, robbed 40, both 40",
        "the highest score is 17, of account-82",
    ]


def test_sessions_of_users_are_those_counted_by_hand() -> None:
    assert "1397 views in 400 sessions (400 counted by hand)" in run("streams_activity")


def test_an_alert_with_hysteresis_is_raised_and_cleared_once() -> None:
    printed = run("streams_sensors")
    assert "crossed 80 degrees 64 times" in printed
    assert re.findall(r"sensor-\d (\w+) at", printed) == ["raised", "cleared"]


def test_the_package_log_is_counted_as_by_hand(tmp_path: Path) -> None:
    path = PACKAGE_LOG
    if not path.exists():
        path = tmp_path / "packages"
        path.write_text("2025-06-24 14:36:25 status installed libc6:amd64 2.36-9\n")
    printed = run("streams_logs", str(path))
    assert "1 bad" in printed
    assert "equal to a count by hand: True" in printed


def test_flights_are_ranked_and_meet_their_weather_as_in_pandas() -> None:
    assert run("streams_flights", "1").count("all equal to pandas") == 2
