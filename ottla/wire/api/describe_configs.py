"""DescribeConfigs (key 32): settings of topics, brokers, loggers, groups and client metrics.

Version 1: synonyms and sources of values (KIP-226); 3 documentation and type (KIP-569).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, String


@wire
class DescribeConfigsResource:
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    configuration_keys: list[String] | None = on("0+", factory=list)


@wire(versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = on("0+", factory=list)
    include_synonyms: Boolean = on("1+", default=False)
    include_documentation: Boolean = on("3+", default=False)


@wire
class DescribeConfigsSynonym:
    name: String = on("1+", default="")
    value: String | None = on("1+", default="")
    source: Int8 = on("1+", default=0)


@wire
class DescribeConfigsResourceResult:
    name: String = on("0+", default="")
    value: String | None = on("0+", default="")
    read_only: Boolean = on("0+", default=False)
    config_source: Int8 = on("1+", default=-1, ignorable=True)
    is_sensitive: Boolean = on("0+", default=False)
    synonyms: list[DescribeConfigsSynonym] = on("1+", factory=list, ignorable=True)
    config_type: Int8 = on("3+", default=0, ignorable=True)
    documentation: String | None = on("3+", default="", ignorable=True)


@wire
class DescribeConfigsResult:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    configs: list[DescribeConfigsResourceResult] = on("0+", factory=list)


@wire(versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[DescribeConfigsResult] = on("0+", factory=list)
