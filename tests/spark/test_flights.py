"""The demo in small: the first days of the year, equal to the figures of pandas; and a referee that can say no."""

import argparse
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples.flights import referee
from examples.flights.__main__ import run

DAYS = 9


@pytest.mark.timeout(300)
def test_every_figure_of_the_pipeline_is_equal_to_pandas(spark: SparkSession, tmp_path: Path) -> None:
    seen = io.StringIO()
    options = argparse.Namespace(bootstrap_servers=None, speed_up=0, days=DAYS, output=tmp_path)
    assert run(Console(file=seen, width=120), options) == 0, seen.getvalue()
    assert seen.getvalue().count("all equal") == 2
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")


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
