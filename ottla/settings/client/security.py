"""A client's authentication and encryption: the settings `security.protocol`, `ssl.*` and `sasl.*`.

Rules:
- The names are Kafka's. Where they fit only Java (key stores, JAAS), librdkafka's names work as well.
- Certificates and keys are PEM, in files or as text, or in Java key stores (PKCS12, JKS).
- A setting without effect under the chosen security.protocol is rejected: it would give a false sense of security.

KIP: 651 (PEM).
"""

from __future__ import annotations

import re
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.settings.client.oauth import OauthSettings
from ottla.settings.client.schema import anything, one_of, optional_text, reads, secret, setting
from ottla.settings.schema import ConfigType

_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_JAAS = re.compile(r'([\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@reads(ConfigType.LIST)
def _versions(value: object) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    versions = tuple(str(word).strip() for word in words) if isinstance(words, (list, tuple)) else ()
    if not versions or not set(versions) <= set(_TLS_VERSIONS):
        raise ValueError(f"some of {', '.join(_TLS_VERSIONS)}")
    return versions


class SecuritySettings(OauthSettings):
    """The security settings of every client."""

    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "Whether connections use TLS (SSL) and authentication (SASL): PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )

    ssl_context: Any = setting(
        "ssl.context",
        None,
        anything,
        "An ssl.SSLContext, which replaces all other ssl.* settings.",
        differs="Ottla's own",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location", None, optional_text, "The file of the trusted CAs; without it, the system's CAs."
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates", None, secret, "The trusted CAs as PEM text."
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        one_of("PEM", "PKCS12", "JKS"),
        "The format of ssl.truststore.location; PKCS12 needs ottla[keystore].",
        differs="Kafka's default is JKS",
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password", None, secret, "The password of a PKCS12 or JKS trust store."
    )
    ssl_ca_location: str | None = setting(
        "ssl.ca.location",
        None,
        optional_text,
        "librdkafka's name: a PEM file, or a directory, of the trusted CAs.",
        differs="librdkafka's, not Kafka's",
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location", None, optional_text, "The file of the client's private key and certificate chain."
    )
    ssl_keystore_key: str | None = setting("ssl.keystore.key", None, secret, "The client's private key as PEM text.")
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain", None, secret, "The client's certificate and its chain as PEM text."
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "PEM",
        one_of("PEM", "PKCS12", "JKS"),
        "The format of ssl.keystore.location; PKCS12 needs ottla[keystore].",
        differs="Kafka's default is JKS",
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password", None, secret, "The password of a PKCS12 or JKS key store."
    )
    ssl_key_location: str | None = setting(
        "ssl.key.location",
        None,
        optional_text,
        "librdkafka's name: a PEM file of the client's private key.",
        differs="librdkafka's, not Kafka's",
    )
    ssl_certificate_location: str | None = setting(
        "ssl.certificate.location",
        None,
        optional_text,
        "librdkafka's name: a PEM file of the client's certificate.",
        differs="librdkafka's, not Kafka's",
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password", None, secret, "The password of the client's private key."
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        one_of("https", ""),
        "https: the broker's certificate must match its host name; empty: no check.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", _TLS_VERSIONS, _versions, "The allowed TLS versions."
    )

    sasl_mechanism: str | None = setting(
        "sasl.mechanism",
        None,
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI (Kerberos, with ottla[kerberos]), with SASL_*.",
        differs="Kafka's default is GSSAPI; here it must be given",
    )
    sasl_username: str | None = setting(
        "sasl.username", None, optional_text, "The user name (librdkafka's name).", differs="librdkafka's, not Kafka's"
    )
    sasl_password: str | None = setting(
        "sasl.password", None, secret, "The password (librdkafka's name).", differs="librdkafka's, not Kafka's"
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        None,
        secret,
        'Java\'s form of both: ... required username="u" password="p"; tokenauth="true" for a delegation token. '
        'For GSSAPI: Krb5LoginModule with useKeyTab=true keyTab="FILE" principal="P", or with useTicketCache=true.',
    )
    sasl_kerberos_service_name: str | None = setting(
        "sasl.kerberos.service.name", None, optional_text, "The first part of the brokers' principal, with GSSAPI."
    )
    sasl_kerberos_keytab: str | None = setting(
        "sasl.kerberos.keytab",
        None,
        optional_text,
        "The file of the client's Kerberos key; without it, its ticket cache (kinit).",
        differs="librdkafka's, not Kafka's",
    )
    sasl_kerberos_principal: str | None = setting(
        "sasl.kerberos.principal",
        None,
        optional_text,
        "The client's Kerberos principal.",
        differs="librdkafka's, not Kafka's",
    )

    @property
    def tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """True if the client authenticates."""
        return self.security_protocol.startswith("SASL")

    @property
    def jaas_options(self) -> dict[str, str]:
        """The quoted options of the JAAS configuration, by name."""
        jaas = _JAAS.findall(self.sasl_jaas_config or "")
        return {name: re.sub(r"\\(.)", r"\1", value) for name, value in jaas}

    @property
    def user(self) -> tuple[str, str, bool]:
        """(name, password, whether they are those of a delegation token)."""
        jaas = self.jaas_options
        name = self.sasl_username if self.sasl_username is not None else jaas.get("username", "")
        password = self.sasl_password if self.sasl_password is not None else jaas.get("password", "")
        token = bool(re.search(r'tokenauth\s*=\s*"?true', self.sasl_jaas_config or ""))
        return name, password, token

    def check(self, given: frozenset[str]) -> None:
        """Check that the given settings have an effect and are complete."""
        super().check(given)
        for prefix, is_enabled in (("ssl", self.tls), ("sasl", self.sasl)):
            ignored = sorted(name for name in given if name.startswith(f"{prefix}_"))
            if ignored and not is_enabled and any(getattr(self, name) is not None for name in ignored):
                name = self.declared[ignored[0]].name
                raise OttlaError(
                    f"{name} has no effect with security.protocol={self.security_protocol}; use "
                    + ("SSL or SASL_SSL" if prefix == "ssl" else "SASL_SSL or SASL_PLAINTEXT")
                )
        if self.tls:
            self._check_tls(given)
        if self.sasl:
            self._check_sasl()

    def _check_tls(self, given: frozenset[str]) -> None:
        if self.ssl_context is not None:
            others = sorted(name for name in given if name.startswith("ssl_") and name != "ssl_context")
            if others:
                raise OttlaError(f"ssl.context replaces all ssl.* settings: remove {self.declared[others[0]].name}")
        for names in (
            ("ssl_truststore_location", "ssl_truststore_certificates", "ssl_ca_location"),
            ("ssl_keystore_location", "ssl_keystore_key", "ssl_key_location"),
        ):
            alternatives = [self.declared[name].name for name in names if getattr(self, name) is not None]
            if len(alternatives) > 1:
                raise OttlaError(f"{alternatives[0]} and {alternatives[1]} are alternatives: remove one")
        for store in ("truststore", "keystore"):
            kind, password_name = getattr(self, f"ssl_{store}_type"), f"ssl.{store}.password"
            if kind != "PEM" and getattr(self, f"ssl_{store}_location") is None:
                raise OttlaError(f"ssl.{store}.type={kind} needs ssl.{store}.location")
            if kind == "PEM" and getattr(self, f"ssl_{store}_password") is not None:
                raise OttlaError(f"{password_name} has no effect with ssl.{store}.type=PEM; use PKCS12 or JKS")
        pairs = (
            ("ssl_keystore_key", "ssl_keystore_certificate_chain"),
            ("ssl_key_location", "ssl_certificate_location"),
        )
        for first, second in pairs:
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise OttlaError(f"{self.declared[first].name} and {self.declared[second].name} must be set together")

    def _check_sasl(self) -> None:
        if self.sasl_mechanism is None:
            raise OttlaError(
                f"security.protocol={self.security_protocol} needs sasl.mechanism: PLAIN, SCRAM-SHA-256, "
                "SCRAM-SHA-512, OAUTHBEARER or GSSAPI"
            )
        if self.sasl_mechanism == "OAUTHBEARER":
            if (self.sasl_oauthbearer_token is None) == (self.sasl_oauthbearer_token_endpoint_url is None):
                raise OttlaError(
                    "OAUTHBEARER needs sasl.oauthbearer.token (a function that returns one) or "
                    "sasl.oauthbearer.token.endpoint.url, and not both"
                )
            return
        if self.sasl_mechanism == "GSSAPI":
            return
        name, password, _ = self.user
        if not name or not password:
            raise OttlaError(
                f"{self.sasl_mechanism} needs sasl.username and sasl.password (or both in sasl.jaas.config)"
            )
