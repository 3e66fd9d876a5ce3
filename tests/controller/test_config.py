"""AlterConfigs and IncrementalAlterConfigs."""

import pytest

from ottla.controller.config import check_own
from ottla.kernel.error import ErrorCode
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.api import alter_configs as legacy
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.record.metadata import ClearElrRecord
from tests.controller.scene import Cluster

SET, DELETE, APPEND, SUBTRACT = range(4)
Answer = tuple[str, str | None]


def change(
    cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Answer:
    """Ask this node's broker, if it may decide about the resource, and then the controller."""
    wanted = {key: (operation, value) for key, operation, value in changes}
    if cluster.settings.is_broker and name in ("", str(cluster.settings.node_id)):
        refused = check_own(cluster.image, cluster.settings, (kind, name), wanted)
        if refused is not None:
            return refused.code.name, refused.message
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [answer] = cluster.ask(request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return ErrorCode(answer.error_code).name, answer.error_message


def replace(cluster: Cluster, kind: int, name: str, configs: dict[str, str | None]) -> Answer:
    given = [legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    [answer] = cluster.ask(legacy.AlterConfigsRequest(resources=[resource])).responses
    return ErrorCode(answer.error_code).name, answer.error_message


@pytest.fixture
def cluster() -> Cluster:
    one = Cluster()
    one.create("flights", configs={"retention.ms": "1000"})
    return one


OK: Answer = ("NONE", None)


def test_a_setting_is_set_and_deleted_and_others_stay(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, "flights", ("retention.bytes", SET, "5")) == OK
    assert cluster.image.config(TOPIC, "flights") == {"retention.ms": "1000", "retention.bytes": "5"}
    assert change(cluster, TOPIC, "flights", ("retention.ms", DELETE, None)) == OK
    assert cluster.image.config(TOPIC, "flights") == {"retention.bytes": "5"}


def test_a_list_grows_from_its_default_and_shrinks(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, "flights", ("cleanup.policy", APPEND, "compact")) == OK
    assert cluster.image.config(TOPIC, "flights")["cleanup.policy"] == "delete,compact"
    assert change(cluster, TOPIC, "flights", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert cluster.image.config(TOPIC, "flights")["cleanup.policy"] == "compact"


def test_a_value_is_in_a_list_once(cluster: Cluster) -> None:
    for given, wanted in (("compact", "delete,compact"), ("delete", "delete,compact"), ("compact,delete", None)):
        assert change(cluster, TOPIC, "flights", ("cleanup.policy", APPEND, given)) == OK
        assert cluster.image.config(TOPIC, "flights")["cleanup.policy"] == (wanted or "delete,compact")


def test_only_a_list_can_be_appended_to(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, "flights", ("retention.ms", APPEND, "1")) == (
        "INVALID_CONFIG",
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


def test_one_bad_value_changes_nothing_of_its_resource(cluster: Cluster) -> None:
    code, _ = change(cluster, TOPIC, "flights", ("retention.bytes", SET, "5"), ("retention.ms", SET, "soon"))
    assert code == "INVALID_CONFIG"
    assert cluster.image.config(TOPIC, "flights") == {"retention.ms": "1000"}


def test_resources_of_one_request_fail_alone(cluster: Cluster) -> None:
    good = incremental.AlterableConfig(name="retention.ms", config_operation=SET, value="7")
    resources = [
        incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[good])
        for name in ("flights", "trains")
    ]
    response = cluster.ask(incremental.IncrementalAlterConfigsRequest(resources=resources))
    assert [(each.error_code, each.error_message) for each in response.responses] == [
        (0, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'trains' does not exist."),
    ]
    assert cluster.image.config(TOPIC, "flights")["retention.ms"] == "7"


def test_validate_only_writes_nothing(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert change(cluster, TOPIC, "flights", ("retention.ms", SET, "7"), validate_only=True) == OK
    assert change(cluster, TOPIC, "flights", ("retention.ms", SET, "x"), validate_only=True)[0] == "INVALID_CONFIG"
    assert len(cluster.log) == before


def test_a_value_that_is_there_already_is_not_written_again(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert change(cluster, TOPIC, "flights", ("retention.ms", SET, "1000")) == OK
    assert len(cluster.log) == before


def test_a_brokers_value_is_written_again_so_that_it_reads_its_files(cluster: Cluster) -> None:
    for _ in range(2):
        before = len(cluster.log)
        assert change(cluster, BROKER, "1", ("log.cleaner.threads", SET, "2")) == OK
        assert len(cluster.log) == before + 1


@pytest.mark.parametrize(
    ("name", "key", "code"),
    [
        ("", "log.cleaner.threads", "NONE"),
        ("1", "log.cleaner.threads", "NONE"),
        ("2", "log.cleaner.threads", "BROKER_ID_NOT_REGISTERED"),
        ("one", "log.cleaner.threads", "INVALID_REQUEST"),
        ("1", "node.id", "INVALID_REQUEST"),
        ("", "advertised.listeners", "INVALID_REQUEST"),
        # A listener is not opened, closed or secured while the node runs.
        ("1", "listeners", "INVALID_REQUEST"),
        ("1", "listener.security.protocol.map", "INVALID_REQUEST"),
        ("", "a.plugins.own", "NONE"),
        ("", "listener.name.plaintext.max.connections", "NONE"),
    ],
)
def test_which_settings_of_a_broker_change_while_it_runs(cluster: Cluster, name: str, key: str, code: str) -> None:
    assert change(cluster, BROKER, name, (key, SET, "1"))[0] == code


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("1", "ssl.keystore.location", "These security configs can be dynamically updated only per-listener"),
        ("1", "ssl.key.password", "These security configs can be dynamically updated only per-listener"),
        ("", "ssl.truststore.location", "These security configs can be dynamically updated only per-listener"),
        ("", "listener.name.plaintext.ssl.keystore.location", "Cannot update these configs at default cluster level"),
        ("", "listener.name.plaintext.connections.max.idle.ms", "Cannot update these configs at default cluster level"),
    ],
)
def test_a_listeners_settings_are_set_for_one_listener_of_one_broker(
    cluster: Cluster, name: str, key: str, words: str
) -> None:
    before = len(cluster.log)
    code, message = change(cluster, BROKER, name, (key, SET, "1"))
    assert (code, (message or "")[: len(words)]) == ("INVALID_REQUEST", words)
    assert len(cluster.log) == before


def test_a_bad_value_of_a_broker_is_an_invalid_request(cluster: Cluster) -> None:
    code, message = change(cluster, BROKER, "1", ("log.cleaner.threads", SET, "many"))
    assert code == "INVALID_REQUEST"
    assert "Invalid value many for configuration log.cleaner.threads: " in (message or "")


def test_a_listeners_limit_is_at_least_one(cluster: Cluster) -> None:
    key = "listener.name.plaintext.max.connections"
    assert change(cluster, BROKER, "1", (key, SET, "0")) == ("INVALID_REQUEST", "Invalid max.connections 0")
    assert change(cluster, BROKER, "1", (key, SET, "1")) == OK


def test_threads_at_most_double_or_halve_from_what_is_in_force(cluster: Cluster) -> None:
    """The broker's own value, else the cluster's: a change of the one is seen beside the other."""
    key = "num.io.threads"  # 8 by default

    def doubled(name: str, value: str) -> str:
        return change(cluster, BROKER, name, (key, SET, value))[0]

    assert [doubled("", "17"), doubled("", "3"), doubled("", "16"), doubled("", "32")] == [
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "NONE",
        "NONE",
    ]
    assert change(cluster, BROKER, "1", ("log.cleaner.threads", SET, "2")) == OK
    assert [doubled("1", "8"), doubled("1", "64"), doubled("1", "128")] == ["INVALID_REQUEST", "NONE", "NONE"]
    # The cluster's value is not this broker's any more.
    assert doubled("", "1") == "NONE"


@pytest.mark.parametrize("pool", ["manager.copier.thread.pool.size", "manager.expiration.thread.pool.size"])
def test_pools_of_tiered_storage_at_most_double_or_halve(cluster: Cluster, pool: str) -> None:
    for key, now in ((f"remote.log.{pool}", 10), ("remote.log.manager.follower.thread.pool.size", 2)):
        for value in (now // 2 - 1, now * 2 + 1):
            code, message = change(cluster, BROKER, "", (key, SET, str(value)))
            assert code == "INVALID_REQUEST", (key, value, message)
        for value in (now // 2, now * 2):
            assert change(cluster, BROKER, "", (key, SET, str(value)), validate_only=True) == OK


def test_with_eligible_leaders_the_cluster_keeps_a_minimum_of_replicas(cluster: Cluster) -> None:
    assert change(cluster, BROKER, "", ("min.insync.replicas", DELETE, None)) == (
        "INVALID_CONFIG",
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert change(cluster, BROKER, "1", ("min.insync.replicas", SET, "2")) == (
        "INVALID_CONFIG",
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    assert change(cluster, BROKER, "", ("min.insync.replicas", SET, "2")) == OK
    assert cluster.log[-1] == ClearElrRecord()
    assert change(cluster, TOPIC, "flights", ("min.insync.replicas", SET, "1")) == OK
    assert cluster.log[-1] == ClearElrRecord(topic_name="flights")


def test_groups_and_client_metrics_have_settings(cluster: Cluster) -> None:
    assert change(cluster, GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000")) == OK
    assert change(cluster, GROUP, "readers", ("no.such", SET, "1"))[0] == "INVALID_CONFIG"
    assert change(cluster, GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))[0] == "INVALID_REQUEST"
    assert change(cluster, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ("metrics", SET, "a")) == OK
    # Apache Kafka takes them for no lists, whatever they look like.
    assert change(cluster, CLIENT_METRICS, "m", ("metrics", APPEND, "b"))[0] == "INVALID_CONFIG"
    assert cluster.image.config(CLIENT_METRICS, "m") == {"interval.ms": "1000", "metrics": "a"}
    assert cluster.image.config_names(GROUP) == ["readers"]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "99", "INVALID_REQUEST"),
        ("interval.ms", "soon", "INVALID_CONFIG"),
        ("colour", "red", "INVALID_REQUEST"),
        ("match", "client_id=a.*", "NONE"),
        ("match", "client_id=(", "INVALID_CONFIG"),
        ("match", "shoe_size=44", "INVALID_CONFIG"),
    ],
)
def test_client_metrics_are_checked(cluster: Cluster, key: str, value: str, code: str) -> None:
    assert change(cluster, CLIENT_METRICS, "m", (key, SET, value))[0] == code


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], "Error due to duplicate config keys"),
        ([("retention.ms", SET, None)], "Null value not supported for : retention.ms"),
        ([("retention.ms", 9, "1")], "Unknown operations type 9"),
    ],
)
def test_a_request_that_makes_no_sense_is_invalid(
    cluster: Cluster, changes: list[tuple[str, int, str | None]], message: str
) -> None:
    assert change(cluster, TOPIC, "flights", *changes) == ("INVALID_REQUEST", message)


def test_a_resource_stands_once_in_a_request(cluster: Cluster) -> None:
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="flights", configs=[])
    response = cluster.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource, resource]))
    assert [each.error_message for each in response.responses] == ["Each resource must appear at most once."] * 2


def test_unknown_kinds_of_resources_are_refused(cluster: Cluster) -> None:
    assert change(cluster, 99, "x") == ("INVALID_REQUEST", "Unknown resource type 99")


def test_the_old_request_replaces_all_settings_of_a_resource(cluster: Cluster) -> None:
    assert replace(cluster, TOPIC, "flights", {"retention.bytes": "5"}) == OK
    assert cluster.image.config(TOPIC, "flights") == {"retention.bytes": "5"}
    assert replace(cluster, TOPIC, "flights", {"retention.bytes": "x"})[0] == "INVALID_CONFIG"
    assert replace(cluster, TOPIC, "flights", {}) == OK
    assert (TOPIC, "flights") not in cluster.image.configs


def test_an_image_tells_which_settings_changed(cluster: Cluster) -> None:
    before = cluster.image
    assert before.changed_configs(before, TOPIC) == []
    change(cluster, TOPIC, "flights", ("retention.ms", SET, "7"))
    assert cluster.image.changed_configs(before, TOPIC) == ["flights"]
    assert cluster.image.changed_configs(before, BROKER) == []
    change(cluster, TOPIC, "flights", ("retention.ms", DELETE, None))
    assert cluster.image.changed_configs(before, TOPIC) == ["flights"]


@pytest.mark.parametrize(("key", "value"), [("cordoned.log.dirs", "/other"), ("num.io.threads", "64")])
def test_configs_of_another_broker_are_not_checked_with_this_nodes_file(key: str, value: str) -> None:
    cluster = Cluster(brokers=2, process_roles="controller", listeners="CONTROLLER://127.0.0.1:9093")
    assert change(cluster, BROKER, "2", (key, SET, value)) == OK
    assert cluster.image.config(BROKER, "2") == {key: value}
