"""Log directories that get no new partitions (KIP-1066)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import describe_log_dirs, incremental_alter_configs
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.disk_scene import Scene, about_to_move


def test_a_cordoned_directory_gets_nothing_new() -> None:
    scene = Scene()
    change = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value="/b")
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    assert scene.ask(request, 1).responses[0].error_code == 0
    scene.create()
    assert {scene.lies_in(index) for index in range(4)} == {"/a"}
    assert scene.move(1, "/b") == "INVALID_REPLICA_ASSIGNMENT"
    answer = scene.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None), 5)
    assert {each.log_dir: each.is_cordoned for each in answer.results} == {"/a": False, "/b": True}
    change.value = "*"
    assert scene.ask(request, 1).responses[0].error_code == 0
    scene.machine.settle()
    with pytest.raises(KafkaError) as raised:
        scene.machine.create_topic("nowhere")
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def _cordon(scene: Scene, operation: int, path: str = "/b") -> tuple[int, str]:
    """(code, message)."""
    change = incremental_alter_configs.AlterableConfig(
        name="cordoned.log.dirs", config_operation=operation, value=path if operation == 0 else None
    )
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = scene.ask(request, 1).responses
    return answer.error_code, answer.error_message or ""


def test_a_cordon_that_is_taken_back_before_the_metadata_has_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat that says it is still on its way."""
    scene = Scene()
    told: list[list[Any]] = []
    monkeypatch.setattr(scene.node.life, "cordoned", told.append)
    for operation in (0, 1):
        assert _cordon(scene, operation) == (ErrorCode.NONE, "")
        scene.machine.settle()
    assert told == [[scene.node.log_dirs._id_of("/b")], []]


def test_a_cordoned_directory_of_the_settings_is_told_when_the_level_knows_of_it() -> None:
    scene = Scene(release="4.2", cordoned_log_dirs="/b", controller_quorum_voters="1@localhost:9093")
    machine, node = scene.machine, scene.node
    machine.settle()
    assert not node.image.brokers[1].cordoned_log_dirs
    described = scene.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None), 5)
    assert {each.log_dir: each.is_cordoned for each in described.results} == {"/a": False, "/b": False}
    code, why = _cordon(scene, 0)
    assert code == ErrorCode.INVALID_CONFIG
    assert why.endswith("requires metadata.version >= 4.3-IV0")
    raised = FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
    machine.ask(UpdateFeaturesRequest(feature_updates=[raised]))
    machine.settle()
    assert node.image.brokers[1].cordoned_log_dirs == (node.log_dirs._id_of("/b"),)


def test_a_move_goes_on_after_the_start_though_its_directory_was_cordoned_since() -> None:
    """As in Apache Kafka, where a cordon refuses new moves only."""
    scene, to = about_to_move(4)
    for number in range(30):
        scene.write(1, b"%d " % number + bytes(200_000))
    scene.slow_down(100_000)
    assert scene.move(1, to) == "NONE"
    assert _cordon(scene, 0, to) == (ErrorCode.NONE, "")
    assert scene.move(1, to) == "INVALID_REPLICA_ASSIGNMENT"
    scene.machine.stop()
    scene.machine.start()
    assert scene.move(1, to) == "INVALID_REPLICA_ASSIGNMENT"
    scene.until_moved(1, to)
    assert scene.read(1) == scene.written[1]
