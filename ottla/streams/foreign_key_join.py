"""The parts of a foreign-key join (KIP-213), named and numbered as in Kafka Streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.flow import plan
from ottla.flow.operator.foreign_key import SubscriptionSerde
from ottla.flow.serde import serde
from ottla.flow.store.spec import StoreSpec
from ottla.flow.where import Where
from ottla.streams.function import Function, with_key
from ottla.streams.option import Materialized, TableJoined, materialized, store_of

if TYPE_CHECKING:
    from ottla.streams.builder import StreamsBuilder
    from ottla.streams.table import KTable

_PREFIX = "KTABLE-FK-JOIN-"


def join(
    this: KTable[Any, Any],
    other: KTable[Any, Any],
    extractor: Function,
    joiner: Function,
    left: bool,
    options: TableJoined,
    given: Materialized | str | StoreSpec | None,
    where: Where,
) -> KTable[Any, Any]:
    """Join two tables by the foreign key that `extractor(key, value)` returns."""
    from ottla.streams.table import KTable

    builder, store_options = this.builder, materialized(given)
    names, store, result, response_source = _names(builder, this, other, options.name, where)
    sources = this.sources | {response_source}
    result_store = builder.store_name(store_options, f"{_PREFIX}OUTPUT-")
    key, value = serde(store_options.key_serde, where) or this.key_serde, serde(store_options.value_serde, where)
    spec = store_of(store_options, result_store, "timestamped_key_value", key, value)
    schema = plan.Schema("table", key, value, versioned=spec.versioned)
    subscriptions = StoreSpec(store, "subscription", None, SubscriptionSerde(this.key_serde))
    node = plan.ForeignKeyJoin(
        result,
        (this.node, other.node),
        schema,
        where,
        left,
        extractor,
        with_key(joiner, 2, "joiner"),
        names,
        subscriptions,
        spec,
        store_options.store_name is not None,
        options.partitioner,
        options.other_partitioner,
    )
    return KTable(builder, builder.add(node), sources, result_store)


def _names(
    builder: StreamsBuilder, this: KTable[Any, Any], other: KTable[Any, Any], name: str | None, where: Where
) -> tuple[plan.ForeignKeyNames, str, str, str]:
    """The names of the parts, the subscription store, the result, and the source of the responses."""

    def named(suffix: str, prefix: str) -> str:
        return builder.named(name, prefix, suffix)

    registration = named("-subscription-registration", f"{_PREFIX}SUBSCRIPTION-REGISTRATION-") + "-topic"
    send = named("-subscription-registration-processor", f"{_PREFIX}SUBSCRIPTION-REGISTRATION-")
    registration_sink = named("-subscription-registration-sink", "KTABLE-SINK-")
    registration_source = named("-subscription-registration-source", "KTABLE-SOURCE-")
    builder.copartition(other.sources | {registration_source}, where)
    store = named("-subscription-store", f"{_PREFIX}SUBSCRIPTION-STATE-STORE-")
    receive = named("-subscription-receive", f"{_PREFIX}SUBSCRIPTION-PROCESSOR-")
    answer = named("-subscription-join-foreign", f"{_PREFIX}SUBSCRIPTION-PROCESSOR-")
    answer_all = named("-foreign-join-subscription", f"{_PREFIX}SUBSCRIPTION-PROCESSOR-")
    response = named("-subscription-response", f"{_PREFIX}SUBSCRIPTION-RESPONSE-") + "-topic"
    response_sink = named("-subscription-response-sink", "KTABLE-SINK-")
    response_source = named("-subscription-response-source", "KTABLE-SOURCE-")
    builder.copartition(this.sources | {response_source}, where)
    resolve = named("-subscription-response-resolver", f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-")
    result = named("-result", f"{_PREFIX}OUTPUT-")
    names = plan.ForeignKeyNames(
        send,
        registration_sink,
        registration_source,
        registration,
        receive,
        answer,
        answer_all,
        response_sink,
        response_source,
        response,
        resolve,
    )
    return names, store, result, response_source
