"""Run the demo: `python -m examples.flights` (what `make demo` does).

A node starts in this process, an unmodified client feeds a year of flights into it, the pipeline of
`examples/flights_pipeline.py` runs over it on Spark, and its results are read back, checked against pandas, and shown.
Exit code 0: every figure is equal. 1: some are not. 2: it could not run.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from rich.console import Console
from rich.text import Text

import ottla
import ottla.spark
from examples import flights_pipeline
from examples.flights import data, feed, plot, referee, screen
from examples.flights.pace import Pace
from examples.flights.results import Results
from ottla.kernel.error import OttlaError

SPEED_UP = 1_000_000.0
LOOK_EVERY_S = 0.25


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__.split("\n\n")[0])
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="a running cluster, instead of a node in here")
    parser.add_argument("--speed-up", type=float, default=SPEED_UP, help="of time; 0: no limit (default: %(default)s)")
    parser.add_argument("--days", type=int, default=data.YEAR, help="only the first days of the year")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture goes")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        return run(console, options)
    except (OttlaError, KafkaException, PySparkException, TimeoutError) as failure:
        console.print(Text(f"the demo could not run: {str(failure).splitlines()[0]}", "red"))
        return 2


def run(console: Console, options: argparse.Namespace) -> int:
    """The demo from its start to its verdict."""
    bootstrap_servers = options.bootstrap_servers
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/dim]  {text}")

    with contextlib.ExitStack() as stack:
        if bootstrap_servers is None:
            bootstrap_servers = stack.enter_context(ottla.Node()).bootstrap_servers
            say(f"an Ottla node serves on {bootstrap_servers}")
        feed.create_topics(bootstrap_servers)
        with ThreadPoolExecutor(1) as aside:
            events = aside.submit(data.ticks, options.days)  # while the JVM starts
            say("Spark's JVM starts; the first time its jars are fetched, which takes a minute or two")
            spark = ottla.spark.session("flights")
            feeding = feed.Feed(bootstrap_servers, events.result(), options.speed_up or None)
        say(f"Spark {spark.version} is ready, and {feeding.total:,} flights and weather reports to send")
        stack.callback(feeding.close)
        feeding.send_tables()
        checkpoints = stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-", ignore_cleanup_errors=True))
        queries = flights_pipeline.start(spark, bootstrap_servers, checkpoints)
        paces = [Pace(query, topic) for query, topic in zip(queries, feed.RESULTS, strict=True)]
        say("the pipeline runs; Spark's first batches take a while to be compiled, and show no result until they end")
        results = Results(bootstrap_servers)
        feeding.start()
        watch(screen.Screen(console, feeding, results, paces))
        say("the pipeline has read everything and closed every window")
        for query in queries:
            query.stop()
        say("the results are read back, drawn and compared with pandas")
        results.finish()
        picture = report(console, results, paces, feeding, options.output)
        judged = [referee.judge(topic, rows, options.days) for topic, rows in results.rows.items()]
    return conclude(console, judged, paces, picture, time.monotonic() - began)


def watch(view: screen.Screen) -> None:
    """Look on until everything is sent and processed."""
    with view, ThreadPoolExecutor(1) as aside:
        while not view.feed.done():
            look(view)
        left = aside.submit(drain, view.paces)
        while not left.done():
            look(view)
        left.result()
        look(view)


def drain(paces: list[Pace]) -> None:
    """Wait until no query has anything left to read or a window left to close."""
    for pace in paces:
        pace.query.processAllAvailable()


def look(view: screen.Screen) -> None:
    """Take in what is new and show it."""
    view.results.poll(LOOK_EVERY_S)
    for pace in view.paces:
        pace.look()
    view.show()


def report(console: Console, results: Results, paces: list[Pace], feeding: feed.Feed, output: Path) -> Path:
    """The tables, the rates and the picture."""
    console.print(screen.carriers(results.rows["carrier-delays"]), screen.conditions(results.rows["weather-delays"]))
    rate = feeding.sent / feeding.seconds
    console.print(f"sent      {feeding.sent:>9,} events in {feeding.seconds:.1f} s: {rate:,.0f} a second")
    console.print("[dim]each stream ends with one event more, 30 days later: it closes the last windows[/dim]")
    for pace in paces:
        busy = f"in {pace.batches} batches, {pace.rate:,.0f} a second while busy"
        console.print(f"{pace.name}: {pace.rows:,} rows read {busy}, {len(results.rows[pace.name]):,} rows written")
    return plot.draw(results.rows["carrier-delays"], results.rows["weather-delays"], output)


def conclude(console: Console, judged: list[referee.Verdict], paces: list[Pace], picture: Path, seconds: float) -> int:
    """Say whether everything is equal; the exit code."""
    console.print(screen.verdicts(judged))
    for verdict in judged:
        for difference in verdict.differences:
            console.print(Text(f"{verdict.topic}: {difference}", "red"))
    dropped = sum(pace.dropped for pace in paces)
    if dropped:
        console.print(Text(f"{dropped} rows came too late for their windows", "red"))
    console.print(f"the picture is in {picture}; all of it took {seconds:.0f} s")
    return 0 if not dropped and all(verdict.equal for verdict in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
