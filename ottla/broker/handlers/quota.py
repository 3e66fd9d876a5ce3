"""DescribeClientQuotas (key 48): what was set for users, client ids and ips (KIP-546). `decide` alters them."""

from __future__ import annotations

from ottla.broker.call.handler import Call, handles
from ottla.controller import quota
from ottla.kernel.error import KafkaError
from ottla.wire.api import ApiKey
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def _refuse(request: DescribeClientQuotasRequest, _: int, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message or None, entries=None)


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, refuse=_refuse)
def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """The entities that match a filter, with their quotas."""
    return quota.describe_client_quotas(call.node.image, request)
