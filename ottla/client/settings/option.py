"""The types of the clients' settings as keyword arguments, for editors and type checkers only.

`python -m tests.client.test_setting_reference` generates this file from the declarations in this folder, and a test
compares the two. Numbers and booleans may also be text, as in Kafka's properties files.
docs/reference/client-settings.md explains each setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from ottla.client.settings.producer import Partitioner
from ottla.serde.serializer import Deserializer, Serializer


class ClientOptions(TypedDict, total=False):
    """Settings of all clients."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    connections_max_idle_ms: int | str
    metadata_max_age_ms: int | str
    metadata_max_idle_ms: int | str
    metadata_recovery_rebootstrap_trigger_ms: int | str
    metadata_recovery_strategy: str
    reconnect_backoff_max_ms: int | str
    reconnect_backoff_ms: int | str
    request_timeout_ms: int | str
    retry_backoff_max_ms: int | str
    retry_backoff_ms: int | str
    sasl_jaas_config: str | None
    sasl_kerberos_keytab: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_service_name: str | None
    sasl_mechanism: str | None
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int | str
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool | str
    sasl_oauthbearer_assertion_claim_nbf_seconds: int | str
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_extensions: Any
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_token: Any
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_username: str | None
    security_protocol: str
    socket_connection_setup_timeout_max_ms: int | str
    socket_connection_setup_timeout_ms: int | str
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_context: Any
    ssl_enabled_protocols: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str


class ProducerOptions(ClientOptions, total=False):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: int | str
    allow_auto_create_topics: bool | str
    batch_size: int | str
    buffer_memory: int | str
    compression_gzip_level: int | str
    compression_lz4_level: int | str
    compression_type: str
    compression_zstd_level: int | str
    delivery_timeout_ms: int | str
    enable_idempotence: bool | str
    enable_metrics_push: bool | str
    key_serializer: Serializer | Literal["bytes", "str", "json"] | None
    linger_ms: int | str
    max_block_ms: int | str
    max_in_flight_requests_per_connection: int | str
    max_request_size: int | str
    partitioner: Partitioner | Literal["default", "round_robin"]
    retries: int | str
    tracing_enable: bool | str
    transaction_timeout_ms: int | str
    transaction_two_phase_commit_enable: bool | str
    transactional_id: str | None
    value_serializer: Serializer | Literal["bytes", "str", "json"] | None


class ConsumerOptions(ClientOptions, total=False):
    """Settings of `Consumer` and `AsyncConsumer`."""

    allow_auto_create_topics: bool | str
    auto_commit_interval_ms: int | str
    auto_offset_reset: str
    check_crcs: bool | str
    dead_letter_topic: str | None
    default_api_timeout_ms: int | str
    enable_auto_commit: bool | str
    enable_metrics_push: bool | str
    exclude_internal_topics: bool | str
    fetch_max_bytes: int | str
    fetch_max_wait_ms: int | str
    fetch_min_bytes: int | str
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    heartbeat_interval_ms: int | str
    isolation_level: str
    key_deserializer: Deserializer | Literal["bytes", "str", "json"] | None
    max_partition_fetch_bytes: int | str
    max_poll_interval_ms: int | str
    max_poll_records: int | str
    on_decode_error: str
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int | str
    tracing_enable: bool | str
    value_deserializer: Deserializer | Literal["bytes", "str", "json"] | None


class ShareConsumerOptions(ClientOptions, total=False):
    """Settings of `ShareConsumer` and `AsyncShareConsumer`."""

    allow_auto_create_topics: bool | str
    check_crcs: bool | str
    dead_letter_topic: str | None
    default_api_timeout_ms: int | str
    enable_metrics_push: bool | str
    exclude_internal_topics: bool | str
    fetch_max_bytes: int | str
    fetch_max_wait_ms: int | str
    fetch_min_bytes: int | str
    group_id: str | None
    key_deserializer: Deserializer | Literal["bytes", "str", "json"] | None
    max_partition_fetch_bytes: int | str
    max_poll_records: int | str
    on_decode_error: str
    share_acknowledgement_mode: str
    share_acquire_mode: str
    tracing_enable: bool | str
    value_deserializer: Deserializer | Literal["bytes", "str", "json"] | None


class AdminOptions(ClientOptions, total=False):
    """Settings of `Admin` and `AsyncAdmin`."""

    default_api_timeout_ms: int | str
