"""kafka-delete-records: delete the records before given offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.json_file import parse, partition_of, typed
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, require
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, read_text

if TYPE_CHECKING:
    from ottla.client import TopicPartition

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option(
        "offset-json-file",
        "REQUIRED: file with the offsets: "
        '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
        "Offset json file path",
    ),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to delete records of the given partitions down to the specified offset.", _run)


def _run(given: Given) -> int:
    require(given, "bootstrap-server", "offset-json-file")
    with admin(given["bootstrap-server"], admin_of(given)) as client:
        wanted = _offsets(read_text(given["offset-json-file"]))
        before: dict[TopicPartition, int] = {}
        twice = []
        for partition, offset in wanted:
            if partition in before and str(partition) not in twice:
                twice.append(str(partition))
            before[partition] = offset
        if twice:
            raise Failed(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
        print("Executing records delete operation")
        results = client.delete_records(before)
    print("Records delete operation completed:")
    for partition in before:
        if partition in results.errors:
            print(f"partition: {partition}\terror: {caused(results.errors[partition])}")
        else:
            print(f"partition: {partition}\tlow_watermark: {results[partition]}")
    return 0


def _offsets(text: str) -> list[tuple[TopicPartition, int]]:
    document = parse(text, "The input string is not a valid JSON")
    version = document.get("version", 1) if isinstance(document, dict) else 1
    if version != 1:
        raise Failed(f"Not supported version field value {version}")
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise Failed("Missing partitions field")
    return [(partition_of(entry), typed(entry, "offset", int, 64)) for entry in document["partitions"]]
