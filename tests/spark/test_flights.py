"""The demo in small, and its figures by Spark's structured streaming; a referee that can say no."""

import argparse
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import ottla
from examples import flights_pipeline
from examples.flights import data, feed, referee
from examples.flights.__main__ import run
from examples.flights.results import Results

DAYS = 9


@pytest.mark.timeout(300)
def test_every_figure_of_the_demo_is_equal_to_pandas(spark: SparkSession, tmp_path: Path) -> None:
    seen = io.StringIO()
    options = argparse.Namespace(bootstrap_servers=None, speed_up=0, days=DAYS, output=tmp_path)
    assert run(Console(file=seen, width=120), options) == 0, seen.getvalue()
    assert seen.getvalue().count("all equal") == 2
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(300)
def test_structured_streaming_finds_the_same_figures(spark: SparkSession, tmp_path: Path) -> None:
    with ottla.Node() as node:
        servers = node.bootstrap_servers
        feed.create_topics(servers)
        feeding = feed.Feed(servers, data.ticks(DAYS), None, closes=True)
        feeding.send_tables()
        feeding.start()
        queries = flights_pipeline.start(spark, servers, str(tmp_path))
        feeding.thread.join()
        assert feeding.done()
        for query in queries:
            query.processAllAvailable()
            query.stop()
        results = Results(servers)
        results.finish()
        feeding.close()
    for topic in feed.RESULTS:
        assert referee.judge(topic, results.rows(topic), DAYS).equal
        assert results.told[topic] == len(results.rows(topic))


def test_the_referee_sees_a_figure_that_differs_in_its_last_bit() -> None:
    rows = referee.carrier_delays(DAYS)
    assert referee.judge("carrier-delays", rows, DAYS).equal
    rows[5]["average"] = rows[5]["average"] * (1 + 2**-52)
    assert not referee.judge("carrier-delays", rows, DAYS).equal


def test_the_referee_sees_a_row_that_is_missing_or_comes_twice() -> None:
    rows = referee.weather_delays(DAYS)
    assert referee.judge("weather-delays", rows, DAYS).equal
    assert not referee.judge("weather-delays", rows[1:], DAYS).equal
    assert not referee.judge("weather-delays", [*rows, rows[0]], DAYS).equal
