"""One file an API family. Importing this package registers them all.

A handler is a plain function of (call, request): its body is stage one, and runs to its end before the next request
is looked at. It returns the response, a `Later` of it, or NO_REPLY.
"""

from ottla.broker.handlers import (
    api_versions,
    cluster,
    config,
    controller,
    delete_records,
    epoch,
    fetch,
    group,
    list_offsets,
    log_dir,
    metadata,
    produce,
    producer_id,
    quorum,
    quota,
    security,
    share_acknowledge,
    share_fetch,
    share_offset,
    share_state,
    streams_group,
    telemetry,
    transaction,
)

__all__ = [
    "api_versions",
    "cluster",
    "config",
    "controller",
    "delete_records",
    "epoch",
    "fetch",
    "group",
    "list_offsets",
    "log_dir",
    "metadata",
    "produce",
    "producer_id",
    "quorum",
    "share_acknowledge",
    "share_fetch",
    "share_offset",
    "share_state",
    "streams_group",
    "quota",
    "security",
    "telemetry",
    "transaction",
]
