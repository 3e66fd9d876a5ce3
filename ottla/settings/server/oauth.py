"""SASL/OAUTHBEARER: where tokens come from and how they are checked."""

from ottla.kernel.validators import LIST, Between, OneOf
from ottla.settings.schema import HIGH, LOW, boolean, class_name, integer, listing, long, password, string


class OauthDeclaration:
    """SASL/OAUTHBEARER: where tokens come from and how they are checked."""

    sasl_oauthbearer_assertion_algorithm = string(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        "The algorithm that signs assertions.",
        OneOf("ES256", "RS256", any_case=True),
    )
    sasl_oauthbearer_assertion_claim_aud = string(
        "sasl.oauthbearer.assertion.claim.aud", None, "The audience of an assertion (claim aud)."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds = integer(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        "How long an assertion is valid (claim exp).",
        Between(0, 86_400),
        LOW,
    )
    sasl_oauthbearer_assertion_claim_iss = string(
        "sasl.oauthbearer.assertion.claim.iss", None, "The issuer of an assertion (claim iss)."
    )
    sasl_oauthbearer_assertion_claim_jti_include = boolean(
        "sasl.oauthbearer.assertion.claim.jti.include",
        False,
        "Whether an assertion has a unique id (claim jti).",
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds = integer(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        "How far in the past an assertion becomes valid (claim nbf).",
        Between(0, 3600),
        LOW,
    )
    sasl_oauthbearer_assertion_claim_sub = string(
        "sasl.oauthbearer.assertion.claim.sub", None, "The subject of an assertion (claim sub)."
    )
    sasl_oauthbearer_assertion_file = string(
        "sasl.oauthbearer.assertion.file", None, "A file with a complete assertion."
    )
    sasl_oauthbearer_assertion_private_key_file = string(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        "The file with the private key that signs assertions.",
    )
    sasl_oauthbearer_assertion_private_key_passphrase = password(
        "sasl.oauthbearer.assertion.private.key.passphrase", None, "The password of that key."
    )
    sasl_oauthbearer_assertion_template_file = string(
        "sasl.oauthbearer.assertion.template.file", None, "A file with claims to include in each assertion."
    )
    sasl_oauthbearer_client_credentials_client_id = string(
        "sasl.oauthbearer.client.credentials.client.id", None, "The client id at the token provider."
    )
    sasl_oauthbearer_client_credentials_client_secret = password(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        "The client secret at the token provider.",
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "The allowed clock difference between provider and node.",
        importance=LOW,
    )
    sasl_oauthbearer_expected_audience = listing(
        "sasl.oauthbearer.expected.audience",
        (),
        "The required audience of a token; empty is not checked.",
        LIST,
        HIGH,
    )
    sasl_oauthbearer_expected_issuer = string(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The required issuer of a token, if it is checked.",
        importance=HIGH,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the provider's keys are refreshed.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "The maximum backoff between two attempts to read the provider's keys.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "The initial backoff between two attempts to read the provider's keys.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_url = string(
        "sasl.oauthbearer.jwks.endpoint.url", None, "The URL of the provider's keys."
    )
    sasl_oauthbearer_jwt_retriever_class = class_name(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "The Java class that fetches tokens.",
    )
    sasl_oauthbearer_jwt_validator_class = class_name(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "The Java class that checks tokens.",
    )
    sasl_oauthbearer_scope = string("sasl.oauthbearer.scope", None, "The scope to request for a token.")
    sasl_oauthbearer_scope_claim_name = string(
        "sasl.oauthbearer.scope.claim.name", "scope", "The claim with a token's scope.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name = string(
        "sasl.oauthbearer.sub.claim.name", "sub", "The claim with a token's user.", importance=LOW
    )
    sasl_oauthbearer_token_endpoint_url = string(
        "sasl.oauthbearer.token.endpoint.url", None, "The URL of the token endpoint."
    )
