"""The source of a client's tokens, for `sasl.mechanism=OAUTHBEARER`. KIPs: 342, 768, 1139."""

from __future__ import annotations

from typing import Any

from ottla.settings.client.schema import (
    DeclaredSettings,
    anything,
    flag,
    integer,
    one_of,
    optional_text,
    reads,
    secret,
    setting,
)
from ottla.settings.schema import ConfigType

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"


@reads(ConfigType.PASSWORD)
def _token(value: object) -> object:
    if value is None or isinstance(value, str) or callable(value):
        return value
    raise ValueError("the token, or a function that returns it")


class OauthSettings(DeclaredSettings):
    """The token settings of every client."""

    sasl_oauthbearer_token: Any = setting(
        "sasl.oauthbearer.token",
        None,
        _token,
        "The token, or a function that returns one, or (token, expiry in seconds since 1970); an async function runs "
        "on the client's loop, another one on a thread.",
        differs="Ottla's own",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        optional_text,
        "The URL of the token endpoint; a file: URL has the token itself.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        None,
        optional_text,
        "The client id for the client credentials grant.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        None,
        secret,
        "The client secret; an assertion may replace it.",
    )
    sasl_oauthbearer_scope: str | None = setting("sasl.oauthbearer.scope", None, optional_text, "The scope to request.")
    sasl_oauthbearer_extensions: Any = setting(
        "sasl.oauthbearer.extensions",
        None,
        anything,
        "SASL extensions for the broker, name to value (KIP-342).",
        differs="Ottla's own",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class",
        f"{_PACKAGE}.DefaultJwtRetriever",
        one_of(
            f"{_PACKAGE}.DefaultJwtRetriever",
            f"{_PACKAGE}.ClientCredentialsJwtRetriever",
            f"{_PACKAGE}.JwtBearerJwtRetriever",
            f"{_PACKAGE}.FileJwtRetriever",
        ),
        "The grant, by the name of Kafka's class: client credentials, JWT bearer, or a token in a file.",
        differs="only these four",
    )
    sasl_oauthbearer_assertion_algorithm: str = setting(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        one_of("RS256", "ES256"),
        "The algorithm that signs assertions.",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = setting(
        "sasl.oauthbearer.assertion.claim.aud", None, optional_text, "The audience of an assertion (claim aud)."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        integer(0, 86_400),
        "How long an assertion is valid (claim exp).",
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = setting(
        "sasl.oauthbearer.assertion.claim.iss",
        None,
        optional_text,
        "The issuer of an assertion (claim iss); with client credentials the assertion replaces the secret.",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = setting(
        "sasl.oauthbearer.assertion.claim.jti.include", False, flag, "Whether an assertion has a unique id (claim jti)."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = setting(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        integer(0, 3600),
        "How far in the past an assertion becomes valid (claim nbf).",
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = setting(
        "sasl.oauthbearer.assertion.claim.sub", None, optional_text, "The subject of an assertion (claim sub)."
    )
    sasl_oauthbearer_assertion_file: str | None = setting(
        "sasl.oauthbearer.assertion.file", None, optional_text, "A file with a complete assertion, instead of a key."
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.file",
        None,
        optional_text,
        "The PEM file of the key that signs assertions; needs ottla[oauth].",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = setting(
        "sasl.oauthbearer.assertion.private.key.passphrase", None, secret, "The passphrase of that key."
    )
    sasl_oauthbearer_assertion_template_file: str | None = setting(
        "sasl.oauthbearer.assertion.template.file",
        None,
        optional_text,
        "A JSON file with a header and a payload to include in each assertion.",
    )
