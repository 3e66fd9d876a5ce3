"""What the controller refuses of changed settings, resource by resource, and lists that grow and shrink."""

from typing import Any

import pytest

from ottla.controller import decision
from ottla.controller.config import Changes, DirectChange, check_own
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.api import alter_configs as legacy
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.controller_registration import ControllerRegistrationRequest
from ottla.wire.record.metadata import ConfigRecord
from tests.controller.scene import Cluster, server_settings
from tests.controller.test_config import APPEND, DELETE, OK, SET, SUBTRACT, change, replace

LONGEST = 32767


@pytest.fixture
def cluster() -> Cluster:
    one = Cluster()
    one.create("flights", configs={"retention.ms": "1000"})
    return one


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code", "words"),
    [
        (TOPIC, "", "retention.ms", "1", "INVALID_REQUEST", "Default topic resources are not allowed."),
        (TOPIC, "a b", "retention.ms", "1", "INVALID_TOPIC_EXCEPTION", ""),
        (TOPIC, "none", "retention.ms", "1", "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'none' does not exist."),
        (TOPIC, "none", "retention.ms", "x", "INVALID_CONFIG", "Invalid value x for configuration retention.ms"),
        (GROUP, "", "consumer.session.timeout.ms", "50000", "INVALID_REQUEST", "Default group resources"),
        (GROUP, "g", "consumer.session.timeout.ms", "1", "INVALID_CONFIG", "consumer.session.timeout.ms must be"),
        (CLIENT_METRICS, "", "interval.ms", "1000", "INVALID_REQUEST", "Subscription name can't be empty"),
        (CLIENT_METRICS, "m", "interval.ms", "3600001", "INVALID_REQUEST", "Invalid value 3600001 for interval.ms"),
        (CLIENT_METRICS, "m", "match", "client_id", "INVALID_CONFIG", "Illegal client matching pattern: client_id"),
        (CLIENT_METRICS, "m", "match", "a=b=c", "INVALID_CONFIG", "Illegal client matching pattern: a=b=c"),
        (CLIENT_METRICS, "m", "match", "client_id=", "INVALID_CONFIG", "Illegal client matching pattern: client_id="),
        (CLIENT_METRICS, "m", "match", "=a", "INVALID_CONFIG", "Illegal client matching pattern: =a"),
        (CLIENT_METRICS, "m", "match", "client_id=a,,x", "INVALID_CONFIG", "Invalid value client_id=a,,x for"),
        (CLIENT_METRICS, "m", "match", "client_id=a, client_id=a", "INVALID_CONFIG", "Invalid value client_id=a, cl"),
        (
            CLIENT_METRICS,
            "m",
            "metrics",
            "a,b , a",
            "INVALID_CONFIG",
            "Invalid value a,b , a for configuration metrics",
        ),
        # An empty prefix would be all metrics.
        (CLIENT_METRICS, "m", "metrics", "a,,b", "INVALID_CONFIG", "Invalid value a,,b for configuration metrics"),
        (CLIENT_METRICS, "m", "metrics", ",", "INVALID_CONFIG", "Invalid value , for configuration metrics"),
        (BROKER, "1", "log.retention.ms", "0", "INVALID_REQUEST", ""),
        (BROKER, "", "log.roll.ms", "0", "INVALID_REQUEST", ""),
        (BROKER, "7", "log.cleaner.threads", "1", "BROKER_ID_NOT_REGISTERED", "No node with id 7 found."),
        (BROKER, "-1", "log.cleaner.threads", "1", "INVALID_REQUEST", "Invalid negative broker ID."),
        (BROKER, "x", "log.cleaner.threads", "1", "INVALID_REQUEST", "Unable to parse broker name"),
        (3, "c", "a", "b", "INVALID_REQUEST", "Unknown resource type 3"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_writes_nothing(
    cluster: Cluster, kind: int, name: str, key: str, value: str, code: str, words: str
) -> None:
    before = len(cluster.log)
    said, message = change(cluster, kind, name, (key, SET, value))
    assert (said, (message or "")[: len(words)]) == (code, words)
    assert len(cluster.log) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("interval.ms", "100"),
        ("interval.ms", "3600000"),
        ("match", ""),
        ("match", "client_id=a=="),
        ("metrics", ""),
        ("metrics", " a , b "),
        ("metrics", "*"),
    ],
)
def test_the_bounds_of_client_metrics_belong_to_them(cluster: Cluster, key: str, value: str) -> None:
    assert change(cluster, CLIENT_METRICS, "m", (key, SET, value)) == OK
    both = "client_id=a.*, client_software_version = [0-9]+"
    assert change(cluster, CLIENT_METRICS, "m", ("match", SET, both)) == OK


@pytest.mark.parametrize(("length", "code"), [(LONGEST, "NONE"), (LONGEST + 1, "INVALID_CONFIG")])
def test_a_value_is_no_longer_than_an_old_answer_can_tell(cluster: Cluster, length: int, code: str) -> None:
    assert change(cluster, CLIENT_METRICS, "m", ("metrics", SET, "x" * length))[0] == code
    result = cluster.create("trains", configs={"leader.replication.throttled.replicas": ",".join(["1:1"] * 9_000)})
    assert ErrorCode(result.error_code) is ErrorCode.INVALID_CONFIG


def test_brokers_voters_and_registered_controllers_have_settings_of_their_own() -> None:
    cluster = Cluster(brokers=2, node_id="3000", process_roles="controller", listeners="CONTROLLER://127.0.0.1:9093")
    cluster.controller.voters = [3000, 3001]
    cluster.ask(ControllerRegistrationRequest(controller_id=3002, incarnation_id=Uuid(bytes(range(16)))))
    for name in ("1", "2", "3000", "3001", "3002"):
        assert change(cluster, BROKER, name, ("log.cleaner.threads", SET, "2")) == OK
        assert replace(cluster, BROKER, name, {"log.cleaner.threads": "1"}) == OK
    assert sorted(cluster.image.config_names(BROKER)) == ["", "1", "2", "3000", "3001", "3002"]
    assert change(cluster, BROKER, "3", ("log.cleaner.threads", SET, "2"))[0] == "BROKER_ID_NOT_REGISTERED"
    assert replace(cluster, BROKER, "3", {"log.cleaner.threads": "2"})[0] == "BROKER_ID_NOT_REGISTERED"


@pytest.mark.parametrize(
    ("operation", "value", "code"),
    [
        (SET, "/a", "NONE"),
        (SET, " /b , /a", "NONE"),
        (SET, "", "NONE"),
        (DELETE, None, "NONE"),
        (SUBTRACT, "/a", "NONE"),
        (APPEND, "/b", "NONE"),
        (SET, "/a,/c", "INVALID_CONFIG"),
        (SET, "*", "INVALID_CONFIG"),
        (APPEND, "/c", "INVALID_CONFIG"),
    ],
)
def test_directories_are_cordoned_through_their_broker_alone(operation: int, value: str | None, code: str) -> None:
    cluster = Cluster(brokers=2)
    change(cluster, BROKER, "2", ("cordoned.log.dirs", SET, "/a,/b"))
    resource = incremental.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="2",
        configs=[incremental.AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = cluster.ask(DirectChange(request)).responses
    assert ErrorCode(answer.error_code).name == code
    if code != "NONE":
        assert "must be a subset" in answer.error_message
        assert cluster.image.config(BROKER, "2")["cordoned.log.dirs"] == "/a,/b"


def test_a_replacement_sent_to_the_controller_cordons_no_more_directories() -> None:
    cluster = Cluster(brokers=2)

    def replaced(value: str) -> str:
        config = legacy.AlterableConfig(name="cordoned.log.dirs", value=value)
        resource = legacy.AlterConfigsResource(resource_type=BROKER, resource_name="2", configs=[config])
        [answer] = cluster.ask(DirectChange(legacy.AlterConfigsRequest(resources=[resource]))).responses
        return ErrorCode(answer.error_code).name

    assert replaced("/a") == "INVALID_CONFIG"
    assert replace(cluster, BROKER, "2", {"cordoned.log.dirs": "/a,/b"}) == OK
    assert replaced("/b") == "NONE"
    assert cluster.image.config(BROKER, "2") == {"cordoned.log.dirs": "/b"}


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([(APPEND, "1:1,2:2")], "0:0,1:1,2:2"),
        ([(APPEND, "0:0")], "0:0"),
        ([(APPEND, "1:1,1:1")], "0:0,1:1"),
        ([(APPEND, "1:1,,")], "0:0,1:1"),
        ([(APPEND, ",")], "0:0"),
        ([(SUBTRACT, "0:0")], ""),
        ([(SUBTRACT, "9:9")], "0:0"),
        ([(APPEND, "1:1"), (SUBTRACT, "0:0")], "1:1"),
    ],
)
def test_a_list_of_a_topic_grows_and_shrinks(cluster: Cluster, operations: list[tuple[int, str]], after: str) -> None:
    key = "leader.replication.throttled.replicas"
    change(cluster, TOPIC, "flights", (key, SET, "0:0"))
    for operation, value in operations:
        assert change(cluster, TOPIC, "flights", (key, operation, value)) == OK
    assert cluster.image.config(TOPIC, "flights")[key] == after


def test_a_list_grows_from_kafkas_default_whatever_the_file_says() -> None:
    """As in Apache Kafka: another controller, with another file, would write the same."""
    cluster = Cluster(log_cleanup_policy="compact")
    cluster.create("flights")
    for kind, name, key in ((BROKER, "", "log.cleanup.policy"), (TOPIC, "flights", "cleanup.policy")):
        assert change(cluster, kind, name, (key, APPEND, "delete")) == OK
        assert cluster.image.config(kind, name)[key] == "delete"
        assert change(cluster, kind, name, (key, APPEND, "compact")) == OK
        assert cluster.image.config(kind, name)[key] == "delete,compact"
    assert change(cluster, BROKER, "1", ("log.cleanup.policy", SUBTRACT, "none")) == OK
    assert cluster.image.config(BROKER, "1")["log.cleanup.policy"] == "delete"
    assert change(cluster, BROKER, "1", ("cordoned.log.dirs", APPEND, "/data")) == OK
    assert cluster.image.config(BROKER, "1")["cordoned.log.dirs"] == "/data"
    assert change(cluster, GROUP, "g", ("share.auto.offset.reset", APPEND, "latest"))[0] == "INVALID_CONFIG"


def test_directories_are_cordoned_from_a_level_on() -> None:
    for level, code in ((CORDONED_DIRECTORIES_FROM - 1, "INVALID_CONFIG"), (CORDONED_DIRECTORIES_FROM, "NONE")):
        cluster = Cluster(features={"metadata.version": level})
        said, words = change(cluster, BROKER, "1", ("cordoned.log.dirs", SET, "/data"))
        assert said == code
        assert not words or words == (
            "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        )


def test_the_old_request_refuses_what_has_no_value_or_stands_twice(cluster: Cluster) -> None:
    assert replace(cluster, TOPIC, "flights", {"retention.ms": None, "segment.ms": None}) == (
        "INVALID_REQUEST",
        "Null value not supported for : retention.ms, segment.ms",
    )
    assert cluster.image.config(TOPIC, "flights") == {"retention.ms": "1000"}
    assert replace(cluster, BROKER, "9", {"log.cleaner.threads": "1"})[0] == "BROKER_ID_NOT_REGISTERED"
    assert replace(cluster, BROKER, "1", {"log.cleaner.threads": "2"}) == OK
    assert replace(cluster, BROKER, "1", {"log.cleaner.dedupe.buffer.size": "134217729"}) == OK
    assert cluster.image.config(BROKER, "1") == {"log.cleaner.dedupe.buffer.size": "134217729"}


def test_a_deleted_setting_needs_no_value_and_one_that_is_set_does(cluster: Cluster) -> None:
    resources = [
        incremental.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="flights",
            configs=[
                incremental.AlterableConfig(name="retention.ms", config_operation=DELETE, value=None),
                incremental.AlterableConfig(name="cleanup.policy", config_operation=APPEND, value=None),
                incremental.AlterableConfig(name="segment.ms", config_operation=SET, value=None),
            ],
        )
    ]
    (answer,) = cluster.ask(incremental.IncrementalAlterConfigsRequest(resources=resources)).responses
    assert answer.error_message == "Null value not supported for : cleanup.policy, segment.ms"
    assert cluster.image.config(TOPIC, "flights") == {"retention.ms": "1000"}


def test_only_a_change_that_counts_for_this_node_is_checked_against_its_other_settings(cluster: Cluster) -> None:
    """Settings that contradict each other are refused wherever each of them is set."""
    lag = "log.cleaner.min.compaction.lag.ms"
    assert change(cluster, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "100")) == OK
    code, words = change(cluster, BROKER, "1", (lag, SET, "101"))
    assert code == "INVALID_REQUEST" and (words or "").startswith(f"{lag}=101 is more than")
    assert change(cluster, BROKER, "1", (lag, SET, "100")) == OK
    assert change(cluster, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "99"))[0] == "INVALID_REQUEST"
    assert change(cluster, BROKER, "", (lag, SET, "101")) == OK, "this node has a value of its own"


def test_a_node_without_cleaners_takes_other_changes() -> None:
    """Also though no number is at most twice and at least half of none."""
    cluster = Cluster(log_cleaner_threads="0")
    assert change(cluster, BROKER, "1", ("log.retention.ms", SET, "5")) == OK
    assert change(cluster, BROKER, "1", ("log.cleaner.threads", SET, "1"))[0] == "INVALID_REQUEST"


@pytest.mark.parametrize("is_direct", [False, True])
def test_configs_of_all_brokers_fit_the_file_of_the_node_that_was_asked(is_direct: bool) -> None:
    """A broker has checked a request that it forwards; its file is not the controller's."""
    cluster = Cluster(process_roles="controller", listeners="CONTROLLER://127.0.0.1:9093")
    configs = [incremental.AlterableConfig(name="num.io.threads", config_operation=SET, value="32")]
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = cluster.ask(DirectChange(request) if is_direct else request).responses
    assert ErrorCode(answer.error_code) is (ErrorCode.INVALID_REQUEST if is_direct else ErrorCode.NONE)
    broker = server_settings(num_io_threads="16")
    for value, refused in (("32", False), ("33", True)):
        wanted: Changes = {"num.io.threads": (SET, value)}
        assert (check_own(Cluster().image, broker, (BROKER, ""), wanted) is not None) is refused


@pytest.mark.parametrize("api", [incremental, legacy])
@pytest.mark.parametrize(
    ("kind", "is_direct", "code"),
    [
        (99, True, ErrorCode.UNSUPPORTED_VERSION),
        (99, False, ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, True, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_controller_says_of_which_kinds_of_resources_it_does_not_know(
    cluster: Cluster, api: Any, kind: int, is_direct: bool, code: ErrorCode
) -> None:
    """Apache Kafka's broker and its controller have codes of their own for it."""
    whole = api.IncrementalAlterConfigsRequest if api is incremental else api.AlterConfigsRequest
    request = whole(resources=[api.AlterConfigsResource(resource_type=kind, resource_name="1", configs=[])])
    [answer] = cluster.ask(DirectChange(request) if is_direct else request).responses
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (TOPIC, "flights", "retention.bytes", "5"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "m", "interval.ms", "1000"),
    ],
)
def test_a_stored_config_of_another_release_hinders_no_change(
    cluster: Cluster, kind: int, name: str, key: str, value: str
) -> None:
    """Kafka 3 had `message.format.version`, and a cluster that was upgraded may still have it."""
    old = "message.format.version"
    cluster.append([ConfigRecord(resource_type=kind, resource_name=name, name=old, value="3.0")])
    assert change(cluster, kind, name, (key, SET, value)) == OK
    assert cluster.image.config(kind, name)[key] == value
    assert change(cluster, kind, name, (old, SET, "2.8"))[0] in ("INVALID_CONFIG", "INVALID_REQUEST")
    assert replace(cluster, kind, name, {key: value, old: "3.0"})[0] in ("INVALID_CONFIG", "INVALID_REQUEST")
    assert replace(cluster, kind, name, {key: value}) == OK
    assert cluster.image.config(kind, name) == {key: value}
    cluster.append([ConfigRecord(resource_type=kind, resource_name=name, name=old, value="3.0")])
    assert change(cluster, kind, name, (old, DELETE, None)) == OK
    assert cluster.image.config(kind, name) == {key: value}


class _Untouched:
    """A part of a request that is not looked into."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is read")


@pytest.mark.parametrize("api", [incremental, legacy])
def test_a_request_for_more_records_than_a_batch_holds_is_not_decided_to_its_end(
    cluster: Cluster, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision, "RECORDS_MAX", 3)
    configs = [api.AlterableConfig(name="consumer.session.timeout.ms", value="50000")]
    groups = [api.AlterConfigsResource(resource_type=GROUP, resource_name=f"{n}", configs=configs) for n in range(4)]
    rest: Any = _Untouched(resource_type=GROUP, resource_name="last")
    whole = api.IncrementalAlterConfigsRequest if api is incremental else api.AlterConfigsRequest
    with pytest.raises(KafkaError) as refused:
        cluster.ask(whole(resources=[*groups, rest]))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert len(cluster.ask(whole(resources=groups[:3])).responses) == 3


@pytest.mark.parametrize("name", ["", "1"])
def test_a_topics_configs_fit_what_the_nodes_are_set_to_while_they_run(cluster: Cluster, name: str) -> None:
    assert change(cluster, BROKER, name, ("log.cleaner.max.compaction.lag.ms", SET, "100")) == OK
    code, words = change(cluster, TOPIC, "flights", ("min.compaction.lag.ms", SET, "101"))
    assert code == "INVALID_CONFIG"
    assert (words or "").startswith("min.compaction.lag.ms=101 is more than max.compaction.lag.ms=100")
    refused = cluster.create("trains", configs={"min.compaction.lag.ms": "101"})
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_CONFIG
    assert change(cluster, TOPIC, "flights", ("min.compaction.lag.ms", SET, "100")) == OK
    assert change(cluster, BROKER, name, ("log.cleaner.max.compaction.lag.ms", DELETE, None)) == OK
    assert change(cluster, TOPIC, "flights", ("min.compaction.lag.ms", SET, "101")) == OK


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_no_more_is_kept_on_the_disk_than_at_all(cluster: Cluster, unit: str) -> None:
    local, whole = f"log.local.retention.{unit}", f"log.retention.{unit}"
    assert change(cluster, BROKER, "", (whole, SET, "1000")) == OK
    for value, words in (("1001", "is more than"), ("-1", "is more than")):
        code, message = change(cluster, BROKER, "", (local, SET, value))
        assert code == "INVALID_REQUEST"
        assert f"{local}={value} {words} {whole}=1000" in (message or "")
    for value in ("1000", "0", "-2"):
        assert change(cluster, BROKER, "", (local, SET, value)) == OK
    assert change(cluster, BROKER, "", (whole, SET, "-1"), (local, SET, "-1")) == OK, "both without a limit"
    assert change(cluster, BROKER, "", (whole, SET, "1000"))[0] == "INVALID_REQUEST"
