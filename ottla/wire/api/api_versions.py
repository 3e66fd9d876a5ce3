"""ApiVersions (key 18): the API versions that a node supports, and the finalized features.

The first request of a connection. A node answers an unknown version with version 0 and UNSUPPORTED_VERSION (KIP-511).
Version 3: the client's software, features (KIP-584); 4 includes features that start at 0; 5 (4.4) the node and cluster
that the client expects to reach (KIP-1242).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, String


@wire(versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: String = on("3+", default="", ignorable=True)
    client_software_version: String = on("3+", default="", ignorable=True)
    cluster_id: String | None = on("5+", default=None, ignorable=True)
    node_id: Int32 = on("5+", default=-1, ignorable=True)


@wire
class ApiVersion:
    api_key: Int16 = on("0+", default=0)
    min_version: Int16 = on("0+", default=0)
    max_version: Int16 = on("0+", default=0)


@wire
class SupportedFeatureKey:
    name: String = on("3+", default="")
    min_version: Int16 = on("3+", default=0)
    max_version: Int16 = on("3+", default=0)


@wire
class FinalizedFeatureKey:
    name: String = on("3+", default="")
    max_version_level: Int16 = on("3+", default=0)
    min_version_level: Int16 = on("3+", default=0)


@wire(versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16 = on("0+", default=0)
    api_keys: list[ApiVersion] = on("0+", factory=list)
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = on("3+", factory=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = on("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = on("3+", factory=list, tag=2, ignorable=True)
    zk_migration_ready: Boolean = on("3+", default=False, tag=3, ignorable=True)
