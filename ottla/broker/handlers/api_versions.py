"""ApiVersions (key 18): the APIs and features of this node; the first request of every connection.

Rules:
- The response's header is always version 0, so that a client that knows only old versions can read it (KIP-511).
- Produce is offered from version 0 although 0 to 2 are refused: librdkafka needs to see it (KAFKA-18659).
- A controller's listener offers the levels that `unstable.api.versions.enable` opens, a broker's those that
  `unstable.feature.versions.enable` does, as in Apache Kafka.
- The client's software name and version must match `[a-zA-Z0-9](-.a-zA-Z0-9)*`, or the request is invalid.

KIPs: 35, 511 client names, 584 features.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.call.handler import Call, handles
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.feature import supported
from ottla.wire.api import API, BOTH, ApiKey
from ottla.wire.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM = 3
#: Offered only if an exporter takes the metrics (KIP-714).
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
#: Features whose range begins at 0 confuse clients that send an older version (KAFKA-17011).
_ZERO_FEATURES_FROM = 4


@handles(ApiKey.API_VERSIONS, on=BOTH)
def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Note the client's software, and answer with every API and feature."""
    if call.version >= _NAMED_FROM:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        call.connection.client_software = (name, version)
    node, features = call.node, call.node.supported_features
    dispatch = node.dispatch_of(call.connection.listener_name)
    if dispatch is node.controller_dispatch:
        features = supported(unstable=node.settings.unstable_api_versions_enable)
    return offer(node, call.version, dispatch.handlers, features)


def offer(
    node: BrokerNode, version: int, keys: Iterable[int], features: Mapping[str, tuple[int, int]]
) -> ApiVersionsResponse:
    """A response of this version that offers these APIs in the versions that the node serves, and these features."""
    unstable = node.settings.unstable_api_versions_enable
    served = [(key, API[key].offered(unstable=unstable)) for key in sorted(keys)]
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=0 if key == ApiKey.PRODUCE else versions.start,
                max_version=versions.stop - 1,
            )
            for key, versions in served
            if key not in _TELEMETRY or node.telemetry.exporter is not None
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(features.items())
            if low > 0 or version >= _ZERO_FEATURES_FROM
        ],
        finalized_features_epoch=node.image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(node.finalized_features.items())
            if level > 0
        ],
    )
