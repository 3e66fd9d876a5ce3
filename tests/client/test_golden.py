"""What the Java client 4.3.1 made of the same input: hashes, assignments, batches (tests/golden/client/java.json).

`Vectors.java` makes that file's answers from its questions.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.client.assignment.assignor import ASSIGNORS, CandidateMember
from ottla.client.assignment.consumer_protocol import Subscription
from ottla.client.producer.delivery import ProducerBatch
from ottla.client.producer.partitioner import key_hash, murmur2
from ottla.kernel.ids import TopicPartition
from ottla.wire.codec import Codec
from tests.interop.toolchain import classpath

FILE = Path(__file__).parents[1] / "golden" / "client" / "java.json"
GOLDEN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_murmur2_is_javas() -> None:
    assert [murmur2(bytes.fromhex(key)) for key, _ in GOLDEN["murmur2"]] == [one for _, one in GOLDEN["murmur2"]]


def test_a_keys_hash_is_murmur2_without_its_sign() -> None:
    keys = [bytes.fromhex(key) for key, _ in GOLDEN["murmur2"]]
    assert [key_hash(key) for key in keys] == [one & 0x7FFFFFFF for _, one in GOLDEN["murmur2"]]
    # As org.apache.kafka.common.utils.Utils has them.
    assert [key_hash(key) for key in (b"21", b"foobar", b"abc")] == [1173551340, 1357151166, 479470107]


def test_murmur2_of_a_column_is_javas() -> None:
    import pyarrow as pa

    from ottla.columns.encode_columns import murmur2_all

    keys = pa.array([bytes.fromhex(key) for key, _ in GOLDEN["murmur2"]], pa.binary())
    assert murmur2_all(keys).tolist() == [one for _, one in GOLDEN["murmur2"]]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_assignments_are_javas(assignor: str) -> None:
    cases = [case for case in GOLDEN["assignments"] if case["assignor"] == assignor]
    assert len(cases) >= 100 and (assignor == "roundrobin" or sum("racks" in case for case in cases) >= 80)
    for case in cases:
        members = [
            CandidateMember(
                one["id"],
                Subscription(
                    tuple(one["topics"]),
                    tuple(TopicPartition(*owned) for owned in one["owned"]),
                    case["generation"],
                    one.get("rack"),
                ),
                one["instance"],
            )
            for one in case["members"]
        ]
        racks = {
            TopicPartition(topic, number): frozenset(where)
            for topic, some in case.get("racks", {}).items()
            for number, where in enumerate(some)
        }
        assigned = ASSIGNORS[assignor](members, case["partitions"], racks)
        assert {member: sorted(map(list, some)) for member, some in assigned.items()} == {
            member: sorted(some) for member, some in case["assigned"].items()
        }


@pytest.mark.parametrize("case", GOLDEN["batches"], ids=lambda case: f"{len(case['records'])}-records")
def test_batches_are_javas_byte_for_byte(case: dict[str, Any]) -> None:
    batch = ProducerBatch("t", 0, 0, 0)
    for timestamp, key, value, pairs in case["records"]:
        batch.add(_bytes(value), _bytes(key), [(name, _bytes(content)) for name, content in pairs], timestamp, 0)
    batch.seal()
    producer_id, epoch, sequence = case["producer"]
    if producer_id >= 0:
        batch.sequence((producer_id, epoch), sequence)
    assert batch.encode(Codec.NONE, None).hex() == case["bytes"]


@pytest.mark.parametrize("case", GOLDEN["batches"], ids=lambda case: f"{len(case['records'])}-records")
def test_batches_of_a_table_are_javas_byte_for_byte(case: dict[str, Any]) -> None:
    import pyarrow as pa

    from ottla.client.producer.outgoing import ColumnMapping, Cut, cuts, fill

    times, keys, values, pairs = zip(*case["records"], strict=True)
    table = pa.table(
        {
            "to": [0] * len(times),
            "time": pa.array(times, pa.int64()),
            "key": pa.array(map(_bytes, keys), pa.binary()),
            "value": pa.array(map(_bytes, values), pa.binary()),
            "headers": pa.array(
                [[(name, _bytes(content)) for name, content in own] for own in pairs], pa.map_(pa.string(), pa.binary())
            ),
        }
    )
    columns = ColumnMapping(key="key", timestamp="time", partition="to", headers="headers")
    (cut,) = cuts(table, columns, lambda: 1, 1 << 20, lambda: 0)
    assert isinstance(cut, Cut)
    batch = ProducerBatch("t", 0, 0, 0)
    fill(batch, cut, Codec.NONE, None)
    producer_id, epoch, sequence = case["producer"]
    if producer_id >= 0:
        batch.sequence((producer_id, epoch), sequence)
    assert batch.encode(Codec.NONE, None).hex() == case["bytes"]


@pytest.mark.interop
def test_the_golden_answers_are_javas() -> None:
    program = str(Path(__file__).parent / "Vectors.java")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = ["java", quiet, "-cp", classpath(), program, str(FILE)]
    answered = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    again = json.loads(answered.stdout)
    assert again["murmur2"] == GOLDEN["murmur2"]
    assert again["batches"] == GOLDEN["batches"]
    for case, other in zip(GOLDEN["assignments"], again["assignments"], strict=True):
        assert _in_order(other) == _in_order(case)


def _in_order(case: dict[str, Any]) -> dict[str, Any]:
    return {**case, "assigned": {member: sorted(some) for member, some in case["assigned"].items()}}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
