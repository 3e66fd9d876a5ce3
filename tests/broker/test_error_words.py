"""An error of a whole request is told of each thing that it names, with its words."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers import config, controller
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import alter_client_quotas as quotas
from ottla.wire.api import alter_configs, create_partitions, create_topics, delete_topics, incremental_alter_configs

CASES: list[tuple[Any, Any, str]] = [
    (
        controller.creation_error_response,
        create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name=name) for name in "ab"]),
        "topics",
    ),
    (
        controller.deletion_error_response,
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name) for name in "ab"]),
        "responses",
    ),
    (controller.deletion_error_response, delete_topics.DeleteTopicsRequest(topic_names=["a", "b"]), "responses"),
    (
        controller.growth_error_response,
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=name) for name in "ab"]
        ),
        "results",
    ),
    (
        controller.change_error_response,
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=name) for name in "ab"]
        ),
        "responses",
    ),
    (
        config.change_error_response,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=name) for name in "ab"
            ]
        ),
        "responses",
    ),
    (
        controller.quotas_error_response,
        quotas.AlterClientQuotasRequest(entries=[quotas.RequestEntryData(entity=[], ops=[]) for _ in "ab"]),
        "entries",
    ),
]


@pytest.mark.parametrize(("respond", "request_", "results"), CASES)
def test_each_thing_has_the_code_and_the_words(respond: Any, request_: Any, results: str) -> None:
    for said, told in (("not now", "not now"), ("", None)):
        response = respond(request_, 0, KafkaError(ErrorCode.POLICY_VIOLATION, said))
        found = [(each.error_code, each.error_message) for each in getattr(response, results)]
        assert found == [(ErrorCode.POLICY_VIOLATION, told)] * 2
        names = [getattr(each, "name", getattr(each, "resource_name", None)) for each in getattr(response, results)]
        assert names in (["a", "b"], [None, None])
