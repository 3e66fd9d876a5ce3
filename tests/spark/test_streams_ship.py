"""What of a program goes to Spark's workers: the files that it names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.flow.topology import Topology
from ottla.kernel.error import OttlaError
from ottla.spark.streams.place import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_module_that_a_program_names_is_imported_by_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    module = tmp_path / "named_by_a_program.py"
    module.write_text("VALUE = 42\n")
    here = list(sys.path)

    def value(_: int) -> int:
        return int(importlib.import_module("named_by_a_program").VALUE)

    try:
        ship(spark, Topology(), [str(module)])
        assert spark.sparkContext.parallelize([1, 2], 2).map(value).collect() == [42, 42]
    finally:
        sys.path[:] = here


def test_a_file_that_is_not_there_is_told_before_any_worker_starts(spark: SparkSession, tmp_path: Path) -> None:
    missing = tmp_path / "missing.zip"
    with pytest.raises(OttlaError, match=rf"py_files: file {missing} does not exist"):
        ship(spark, Topology(), [str(missing)])
