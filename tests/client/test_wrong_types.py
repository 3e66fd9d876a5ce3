"""Wrong arguments everywhere: each call works or says in a sentence what is wrong, and the client goes on."""

import asyncio
import gc
import importlib
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

import ottla
from ottla.client import (
    Admin,
    AlterOperation,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OttlaError,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    UncheckedErrors,
)
from ottla.client.admin.result import ConfigValue
from ottla.client.producer.delivery import ProducerBatch

WRONG: list[Any] = [
    5,
    -1,
    2**70,
    5.5,
    float("nan"),
    "a",
    "\ud800",
    b"x",
    None,
    True,
    [],
    [5],
    ["a", 5],
    {},
    {"a": 5},
    {5: "a"},
    ("a",),
    ("a", "b"),
    object(),
    TopicPartition("a", 0),
]
#: What a call gets for the arguments that are not tried.
GOOD = {
    "topic": "t",
    "name": "t",
    "names": ["t"],
    "group": "g",
    "offsets": {TopicPartition("t", 0): 0},
    "partition": TopicPartition("t", 0),
    "partitions": [TopicPartition("t", 0)],
    "resource": ConfigResource(ResourceType.TOPIC, "t"),
    "changes": {},
    "hmac": b"x",
    "voter": 77,
    "directory_id": bytes(16),
    "endpoints": {"CONTROLLER": ("127.0.0.1", 1)},
    "broker": 77,
    "transactional_id": "x",
    "start_offset": 0,
    "spec": 0,
    "offset": 0,
    "topics": ["t"],
    "table": pa.table({"value": ["x"]}),
    "reader": "g",
}


def good(method: str, parameter: inspect.Parameter) -> Any:
    if method == "create_topics":
        return [NewTopic("t")]
    return GOOD.get(parameter.name, [])


def calls(cls: type, without: set[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every public method with each of its parameters wrong in each way."""
    for name, method in vars(cls).items():
        if name.startswith("_") or name in without or not inspect.isfunction(method):
            continue
        parameters = [one for one in inspect.signature(method).parameters.values() if one.name != "self"]
        needed = {one.name: good(name, one) for one in parameters if one.default is one.empty}
        for one in parameters:
            for wrong in WRONG:
                yield name, one.name, {**needed, one.name: wrong}


def attempt(client: object, name: str, arguments: dict[str, Any]) -> str | None:
    """What is bad about how the call went."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(client, name)(**arguments)
            gc.collect(0)
    except (TypeError, ValueError, OttlaError, KafkaError) as error:
        if " " not in str(error) and not isinstance(error, KafkaError):
            return f"{name}({arguments!r}) says only {error!r}"
        if "object has no attribute" in str(error) or "required argument is not" in str(error):
            return f"{name}({arguments!r}) says {error}"
    except Exception as error:
        return f"{name}({arguments!r}): {type(error).__name__}: {error}"
    return None


@pytest.mark.timeout(240)
def test_admin_takes_every_wrong_argument_calmly(node: ottla.Node) -> None:
    bad: list[str] = []
    settings: dict[str, Any] = {"default_api_timeout_ms": 60, "retry_backoff_ms": 20, "reconnect_backoff_ms": 1}
    with Admin(node.bootstrap_servers, **settings) as admin:
        for name, _, arguments in calls(Admin, {"close"}):
            if found := attempt(admin, name, arguments):
                bad.append(found)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        assert bad == []
    with Admin(node.bootstrap_servers) as admin:
        admin.list_topics()


def test_a_producer_takes_every_wrong_argument_calmly(node: ottla.Node) -> None:
    bad: list[str] = []
    node.create_topic("produced")
    with Producer(node.bootstrap_servers, max_block_ms=50) as producer:
        for name, _, arguments in calls(Producer, {"close", "forked"}):
            if name == "flush" and isinstance(arguments.get("timeout"), (int, float)):
                continue
            if found := attempt(producer, name, arguments):
                bad.append(found)
        assert bad == []
        assert producer.send("produced", b"x").result(20).offset >= 0


def test_consumers_take_every_wrong_argument_calmly(node: ottla.Node) -> None:
    bad: list[str] = []
    node.create_topic("consumed")
    quick: dict[str, Any] = {"default_api_timeout_ms": 60, "retry_backoff_ms": 20}
    made: list[tuple[type, Callable[[], Any]]] = [
        (Consumer, lambda: Consumer(node.bootstrap_servers, group_id="f", auto_offset_reset="earliest", **quick)),
        (ShareConsumer, lambda: ShareConsumer(node.bootstrap_servers, group_id="s", **quick)),
    ]
    for cls, make in made:
        for name, parameter, arguments in calls(cls, {"close", "forked"}):
            wrong = arguments[parameter]
            if parameter == "timeout" and isinstance(wrong, int) and not isinstance(wrong, bool) and wrong > 0:
                continue
            if name.startswith("poll"):
                arguments.setdefault("timeout", 0)
            if name in ("subscribe", "assign"):
                with make() as client:
                    found = attempt(client, name, arguments)
            else:
                continue
            if found:
                bad.append(found)
        with make() as client:
            if cls is Consumer:
                client.assign([TopicPartition("consumed", 0)])
            else:
                client.subscribe("consumed")
            for name, parameter, arguments in calls(cls, {"close", "forked", "subscribe", "assign"}):
                wrong = arguments[parameter]
                if parameter == "timeout" and isinstance(wrong, (int, float)) and wrong is not True and wrong > 0:
                    continue
                if name.startswith("poll"):
                    arguments.setdefault("timeout", 0)
                if found := attempt(client, name, arguments):
                    bad.append(found)
    assert bad == []
    with Producer(node.bootstrap_servers) as producer:
        producer.send("consumed", b"x").result(20)
    with made[0][1]() as client:
        client.assign([("consumed", 0)])
        assert [record.value for record in client.poll(20)] == [b"x"]


@pytest.mark.parametrize("cls", [Producer, Consumer, ShareConsumer, Admin])
def test_constructors_take_every_wrong_argument_calmly(cls: Any) -> None:
    bad: list[str] = []
    names = cls("127.0.0.1:9", group_id="g").settings.declared if cls is ShareConsumer else {}
    kinds: dict[Any, Any] = {}
    from ottla.client.settings.consumer import ConsumerSettings
    from ottla.client.settings.producer import ProducerSettings
    from ottla.client.settings.share import ShareConsumerSettings
    from ottla.settings.client.client import AdminSettings

    kinds = {
        Producer: ProducerSettings,
        Consumer: ConsumerSettings,
        ShareConsumer: ShareConsumerSettings,
        Admin: AdminSettings,
    }
    names = kinds[cls].declared
    for wrong in WRONG:
        for arguments, keywords in (
            *(((wrong,), {}),),
            *(((), {"bootstrap_servers": "127.0.0.1:9", name: wrong}) for name in names),
        ):
            try:
                kinds[cls].read(*(arguments or (None,)), keywords)
            except (TypeError, ValueError, OttlaError) as error:
                if " " not in str(error) or "object has no attribute" in str(error):
                    bad.append(f"{arguments} {keywords}: {error}")
            except Exception as error:
                bad.append(f"{arguments} {keywords}: {type(error).__name__} {error}")
    assert bad == []


# ---- one at a time


def test_a_str_is_not_a_list_of_letters(ottla_node: ottla.Node) -> None:
    for name in "abc":
        ottla_node.create_topic(name)
    with Admin(ottla_node.bootstrap_servers) as admin:
        with pytest.raises(TypeError, match=r"delete_topics, argument names: expected a list of str.*\['abc'\]"):
            admin.delete_topics("abc")
        with pytest.raises(TypeError, match="delete_groups, argument groups"):
            admin.delete_groups("xyz")
        assert {"a", "b", "c"} <= {one.name for one in admin.list_topics()}


def test_errors_that_nobody_looked_at_warn(node: ottla.Node) -> None:
    with Admin(node.bootstrap_servers) as admin:
        with pytest.warns(UncheckedErrors, match="delete_topics: 1 of 1 failed and were not looked at, first nosuch"):
            admin.delete_topics(["nosuch"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert list(admin.delete_topics(["nosuch"]).errors) == ["nosuch"]
            assert admin.delete_topics(["nosuch"]).succeeded == {}
            with pytest.raises(KafkaError):
                admin.delete_topics(["nosuch"]).check()


def test_settings_may_be_numbers(node: ottla.Node) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "numbers")
    with Admin(node.bootstrap_servers) as admin:
        configs: dict[str, ConfigValue] = {
            "retention.ms": 60_000,
            "preallocate": False,
            "cleanup.policy": ["compact", "delete"],
        }
        admin.create_topic("numbers", configs=configs)
        found = admin.describe_config(resource)
        assert [found[name].value for name in configs] == ["60000", "false", "compact,delete"]
        admin.alter_config(resource, {"retention.ms": 70_000, "cleanup.policy": (AlterOperation.SUBTRACT, ["compact"])})
        found = admin.describe_config(resource)
        assert [found[name].value for name in configs] == ["70000", "false", "delete"]


def test_a_float_timestamp_is_refused_and_nothing_hangs(node: ottla.Node) -> None:
    with Producer(node.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match=r"timestamp \(ms since 1970\) is a whole number \(int\), not float"):
            producer.send("stamped", b"x", timestamp=time.time() * 1000)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timestamp"):
            producer.send("stamped", b"x", timestamp=-1)
        assert producer.send("stamped", b"x", timestamp=1).result(20).timestamp == 1


def test_a_wrong_topic_does_not_ruin_the_producer(node: ottla.Node) -> None:
    with Producer(node.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="a topic must be a str, not int: 5"):
            producer.send(5, "x")  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: invalid topic name: 'bad name'"):
            producer.send("bad name", "x")
        producer.send("fine", "x").result(20)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"headers": "abc"}, "headers are a list of"),
        ({"headers": ["abc"]}, "a header is a .name, value. pair, not 'abc'"),
        ({"headers": [("a", 5)]}, "header a is bytes, str or None, not int"),
        ({"headers": [(b"a", b"b")]}, "a header's name is str, not bytes"),
        ({"headers": [("\ud800", b"")]}, "surrogates not allowed"),
        ({"partition": "0"}, "partition is a whole number"),
        ({"partition": True}, "partition is a whole number"),
        ({"key": 5}, "a record's key is bytes, str or None, not int"),
        ({"value": 5}, "a record's value is bytes, str or None, not int"),
    ],
)
def test_parts_of_a_record_are_checked_at_the_call(node: ottla.Node, arguments: dict[str, Any], said: str) -> None:
    with Producer(node.bootstrap_servers) as producer:
        with pytest.raises((TypeError, ValueError), match=said):
            producer.send("parts", **arguments)
        producer.send("parts", b"x").result(20)


def test_a_serializer_must_give_bytes(node: ottla.Node) -> None:
    with Producer(node.bootstrap_servers, value_serializer=lambda value: value, key_serializer="str") as producer:
        with pytest.raises(TypeError, match=r"value\.serializer gives bytes or None, not str: 'x'"):
            producer.send("s", "x")
        with pytest.raises(TypeError, match="the serializer str takes str, not int: 5"):
            producer.send("s", b"x", key=5)
        producer.send("s", b"x").result(20)
    with Producer(node.bootstrap_servers, partitioner=cast(Any, lambda topic, key, count: "0")) as producer:
        with pytest.raises(TypeError, match="the partitioner's result is a whole number"):
            producer.send("s", b"x")
        producer.send("s", b"x", partition=0).result(20)


def test_what_the_encoder_cannot_write_fails_its_own_delivery(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = ProducerBatch.encode

    def failing(self: ProducerBatch, codec: Any, level: Any) -> Any:
        if self.topic == "poison":
            raise LookupError("a bug")
        return encode(self, codec, level)

    monkeypatch.setattr(ProducerBatch, "encode", failing)
    with Producer(node.bootstrap_servers) as producer:
        bad = producer.send("poison", b"x")
        good = producer.send("healthy", b"x")
        with pytest.raises(KafkaError, match="encoding the batch failed: LookupError: a bug") as raised:
            bad.result(20)
        assert raised.value.code is ErrorCode.INVALID_RECORD
        assert good.result(20).offset == 0
        assert producer.send("healthy", b"y").result(20).offset == 1


def test_brokers_may_be_a_list(node: ottla.Node) -> None:
    with Producer([node.bootstrap_servers, "127.0.0.1:9"]) as producer:
        producer.send("listed", b"x").result(20)
    with pytest.raises(TypeError, match="a client takes host:port"):
        Producer(5)  # type: ignore[arg-type]


def test_partitions_are_pairs(node: ottla.Node) -> None:
    with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        with pytest.raises(TypeError, match=r"a partition is a TopicPartition.*not 't'.*TopicPartition\('t', 0\)"):
            consumer.assign(["t"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="put it into a list"):
            consumer.assign(TopicPartition("t", 0))  # type: ignore[arg-type]
        node.create_topic("pairs")
        consumer.assign([("pairs", 0)])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="seek, argument partition: a partition is a TopicPartition"):
            consumer.seek("pairs", 0)  # type: ignore[arg-type]
        consumer.seek(("pairs", 0), 0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected a number from 0"):
            consumer.assign([("pairs", -1)])  # type: ignore[list-item]


def test_a_delivery_is_printed_readably(node: ottla.Node) -> None:
    with Producer(node.bootstrap_servers, linger_ms=10_000) as producer:
        delivery = producer.send("shown", b"x", partition=0)
        assert repr(delivery) == "<Delivery to shown-0: pending>"
        producer.flush()
        assert f"{delivery}" == "<Delivery to shown-0: at offset 0>"


@pytest.mark.parametrize("cls", [AsyncProducer, AsyncConsumer, AsyncAdmin, AsyncShareConsumer])
def test_asynchronous_clients_are_made_on_a_loop(cls: Any) -> None:
    with pytest.raises(OttlaError, match=f"{cls.__name__} must be made in a coroutine.*use {cls.__name__[5:]}"):
        cls("127.0.0.1:9092", **({"group_id": "g"} if cls is AsyncShareConsumer else {}))


def test_a_poll_of_a_thousand_seconds_warns(node: ottla.Node) -> None:
    node.create_topic("long")
    with Producer(node.bootstrap_servers) as producer:
        producer.send("long", b"x").result(20)
    with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("long", 0)])
        with pytest.warns(UserWarning, match="waits up to 1000 seconds: write 1 for 1000 ms"):
            assert consumer.poll(1000)


@pytest.mark.parametrize("assigns", [False, True])
def test_a_topic_that_is_not_there_is_said_once(
    node: ottla.Node, caplog: pytest.LogCaptureFixture, assigns: bool
) -> None:
    name = f"typo-{assigns}"
    with Consumer(node.bootstrap_servers, group_id=name, allow_auto_create_topics=False) as consumer:
        if assigns:
            consumer.assign([TopicPartition(name, 0)])
        else:
            consumer.subscribe([name])
        assert consumer.poll(0.3) == []
        assert consumer.poll(0.1) == []
    said = [one.getMessage() for one in caplog.records if name in one.getMessage()]
    assert said == [f"topic {name} does not exist: waiting until it is created"]
    with Admin(node.bootstrap_servers) as admin:
        assert name not in {one.name for one in admin.list_topics()}
    with Consumer(node.bootstrap_servers, group_id=name) as consumer:
        consumer.subscribe([name])
        consumer.poll(0.3)
    assert f"topic {name} does not exist: the metadata request creates it" in caplog.text
    with pytest.raises(KafkaError, match="invalid topic name: 'bad name'"):
        Consumer(node.bootstrap_servers, group_id=name).subscribe(["bad name"])


def test_a_missing_extra_says_what_to_install(node: ottla.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    install = r"pip install 'ottla\[arrow\]'"
    with Consumer(node.bootstrap_servers) as consumer, Producer(node.bootstrap_servers) as producer:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.delitem(sys.modules, "ottla.serde.serde", raising=False)
        with pytest.raises(ImportError, match=install):
            importlib.import_module("ottla.serde.serde")
        with pytest.raises(OttlaError, match=install):
            consumer.poll_table(0)
        with pytest.raises(OttlaError, match=install):
            producer.send_table("t", None)


def test_asynchronous_clients_check_the_same(node: ottla.Node) -> None:
    async def main() -> None:
        async with AsyncAdmin(node.bootstrap_servers) as admin, AsyncProducer(node.bootstrap_servers) as producer:
            with pytest.raises(TypeError, match="expected a list of str"):
                await admin.delete_topics("abc")
            with pytest.raises(TypeError, match="timestamp"):
                await producer.send("t", b"x", timestamp=1.5)  # type: ignore[arg-type]
            await (await producer.send("t", b"x"))

    asyncio.run(main())
