"""Run the demo: `python -m examples.flights`, or `make demo`.

A node starts in this process, an unmodified client feeds a year of flights into it, the Streams program of
`examples/streams_flights.py` processes them on Spark, and its results are read back, compared with pandas, and shown.
Exit code 0: every figure is equal. 1: some differ. 2: the demo could not run.
"""

import argparse
import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from pyspark.errors import PySparkException
from rich.console import Console
from rich.text import Text

import ottla
import ottla.spark
from examples import streams_flights
from examples.flights import data, feed, plot, referee, screen
from examples.flights.pace import Pace
from examples.flights.results import Results
from ottla.flow.handler import State
from ottla.kernel.error import OttlaError
from ottla.spark.streams.handle import Handle

SPEED_UP = 1_000_000.0
LOOK_EVERY_S = 0.25
#: The timeout until all tasks of the program are open.
START_S = 120


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__.split("\n\n")[0])
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="use a running cluster instead of a new node")
    parser.add_argument(
        "--speed-up", type=float, default=SPEED_UP, help="speed of event time; 0: no limit (default: %(default)s)"
    )
    parser.add_argument("--days", type=int, default=data.YEAR, help="send only the first DAYS of the year")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="the directory of the picture")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        return run(console, options)
    except (OttlaError, KafkaException, PySparkException, TimeoutError) as failure:
        console.print(Text(f"the demo could not run: {str(failure).splitlines()[0]}", "red"))
        return 2


def run(console: Console, options: argparse.Namespace) -> int:
    """Run the whole demo; returns the exit code."""
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
            say("starting Spark's JVM; the first start downloads its jars, which takes a minute or two")
            spark = ottla.spark.session("flights")
            feeding = feed.Feed(bootstrap_servers, events.result(), options.speed_up or None)
        say(f"Spark {spark.version} is ready; {feeding.total:,} flights and weather reports to send")
        stack.callback(feeding.close)
        feeding.send_tables()
        app = streams_flights.program()
        running = app.start(bootstrap_servers, spark=spark)
        pace = Pace(running, bootstrap_servers)
        stack.callback(pace.close)
        stack.callback(running.stop)
        results = Results(bootstrap_servers)
        await_running(running)
        say(f"the program runs, exactly once: {len(running.program.tasks)} tasks on {running.slots} workers")
        feeding.start()
        watch(screen.Screen(console, feeding, results, pace))
        say("the program has processed everything")
        running.stop()
        say("reading the results back, drawing them and comparing them with pandas")
        results.finish()
        picture = report(console, results, pace, feeding, options.output)
        judged = [referee.judge(topic, results.rows(topic), options.days) for topic in feed.RESULTS]
    return conclude(console, judged, pace, picture, time.monotonic() - began)


def await_running(running: Handle) -> None:
    """Wait until all tasks are open; raises the error if the program ends before."""
    deadline = time.monotonic() + START_S
    while running.state is not State.RUNNING:
        if running.await_termination(0.05) or time.monotonic() > deadline:
            raise TimeoutError(f"the program is {running.state.value} after {START_S} s")


def watch(view: screen.Screen) -> None:
    """Update the view until everything is sent and processed."""
    with view, ThreadPoolExecutor(1) as aside:
        while not view.feed.done():
            look(view)
        left = aside.submit(view.pace.drain)
        while not left.done():
            look(view)
        left.result()
        look(view)


def look(view: screen.Screen) -> None:
    """Read the latest figures and show them."""
    view.results.poll(LOOK_EVERY_S)
    view.pace.look()
    view.show()


def report(console: Console, results: Results, pace: Pace, feeding: feed.Feed, output: Path) -> Path:
    """The tables, the rates and the picture."""
    airlines, conditions = results.rows("carrier-delays"), results.rows("weather-delays")
    console.print(screen.carriers(airlines), screen.conditions(conditions))
    rate = feeding.sent / feeding.seconds
    console.print(f"sent: {feeding.sent:,} events in {feeding.seconds:.1f} s, {rate:,.0f} a second")
    for part in pace.parts.values():
        each_us = 1e6 * part.busy_s / max(part.processed, 1)
        done = f"{part.processed:,} records, {each_us:.0f} µs each, in {part.commits} transactions"
        console.print(f"[dim]{part.reads}:[/dim] {done}")
    for topic in feed.RESULTS:
        console.print(f"{topic}: told {results.told[topic]:,} times, {len(results.rows(topic)):,} rows at the end")
    return plot.draw(airlines, conditions, output)


def conclude(console: Console, judged: list[referee.Verdict], pace: Pace, picture: Path, seconds: float) -> int:
    """Print whether everything is equal; returns the exit code."""
    console.print(screen.verdicts(judged))
    for verdict in judged:
        for difference in verdict.differences:
            console.print(Text(f"{verdict.topic}: {difference}", "red"))
    if pace.dropped:
        console.print(Text(f"{pace.dropped} records came too late for their windows", "red"))
    console.print(f"the picture is in {picture}; the demo took {seconds:.0f} s")
    return 0 if not pace.dropped and all(verdict.equal for verdict in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
