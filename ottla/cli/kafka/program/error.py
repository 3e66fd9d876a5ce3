"""Errors worded like those of the Java client: its exception classes, and its messages where a broker sends none.

Scripts match these. The names and short messages are those of `org.apache.kafka.common.protocol.Errors`.
"""

from __future__ import annotations

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import standard as standard_words

#: Codes whose class is not named after the code.
_CLASSES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.NETWORK_EXCEPTION: "NetworkException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "OutOfOrderSequenceException",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "DuplicateSequenceException",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingException",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledException",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationException",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdException",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "InvalidRegularExpression",
}


def message(error: Exception) -> str:
    """Return the error's message, or the Java client's message for its code if there is none."""
    if isinstance(error, KafkaError):
        return error.message if error.message not in ("", error.code.name) else standard_words(error.code)
    return str(error)


def caused(error: Exception) -> str:
    """Return class and message like Java's `ExecutionException.getMessage`; for other errors only the message."""
    return f"{java_class(error)}: {message(error)}" if isinstance(error, KafkaError) else str(error)


def java_class(error: KafkaError) -> str:
    """Return the exception class that the Java client throws for an error."""
    name = _CLASSES.get(error.code) or "".join(word.capitalize() for word in error.code.name.split("_")) + "Exception"
    return f"org.apache.kafka.common.errors.{name}"


def standard_message(error: KafkaError) -> str:
    """Return the Java client's message for the error code, ignoring the error's own message."""
    return standard_words(error.code)


def standard(error: KafkaError) -> str:
    """Return the exception class and the Java client's message for the error code."""
    return f"{java_class(error)}: {standard_message(error)}"
