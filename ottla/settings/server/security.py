"""TLS, and the settings common to all SASL mechanisms."""

from ottla.kernel.validators import LIST, POSITIVE, OneOf
from ottla.settings.schema import (
    HIGH,
    LOW,
    PER_BROKER,
    boolean,
    class_name,
    double,
    integer,
    listing,
    long,
    password,
    short,
    string,
)


class SecurityDeclaration:
    """TLS, and the settings common to all SASL mechanisms."""

    ssl_allow_dn_changes = boolean(
        "ssl.allow.dn.changes",
        False,
        "Whether a new key store may have another distinguished name.",
        importance=LOW,
    )
    ssl_allow_san_changes = boolean(
        "ssl.allow.san.changes",
        False,
        "Whether a new key store may have other subject alternative names.",
        importance=LOW,
    )
    ssl_cipher_suites = listing(
        "ssl.cipher.suites",
        (),
        "The allowed cipher suites; empty uses the library's defaults.",
        LIST,
        mode=PER_BROKER,
    )
    ssl_client_auth = string(
        "ssl.client.auth",
        "none",
        "Whether clients must present a certificate: required, requested or none.",
        OneOf("required", "requested", "none"),
        mode=PER_BROKER,
    )
    ssl_enabled_protocols = listing(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "The allowed TLS versions.",
        LIST,
        mode=PER_BROKER,
    )
    ssl_endpoint_identification_algorithm = string(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a server's host name is checked against its certificate; empty disables the check.",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_engine_factory_class = class_name(
        "ssl.engine.factory.class",
        None,
        "A Java class that creates TLS engines.",
        importance=LOW,
        mode=PER_BROKER,
        served=False,
    )
    ssl_key_password = password("ssl.key.password", None, "The password of the private key.", mode=PER_BROKER)
    ssl_keymanager_algorithm = string(
        "ssl.keymanager.algorithm", "SunX509", "Java's algorithm of the key manager.", mode=PER_BROKER, served=False
    )
    ssl_keystore_certificate_chain = password(
        "ssl.keystore.certificate.chain", None, "The certificate with its chain, as PEM.", mode=PER_BROKER
    )
    ssl_keystore_key = password("ssl.keystore.key", None, "The private key, as PEM.", mode=PER_BROKER)
    ssl_keystore_location = string(
        "ssl.keystore.location",
        None,
        "The file with the private key and its certificate.",
        mode=PER_BROKER,
    )
    ssl_keystore_password = password(
        "ssl.keystore.password", None, "The password of the key store's file.", mode=PER_BROKER
    )
    ssl_keystore_type = string(
        "ssl.keystore.type", "JKS", "The format of the key store: PEM, PKCS12 or JKS.", mode=PER_BROKER
    )
    ssl_principal_mapping_rules = string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that map a certificate's distinguished name to a user name.",
        importance=LOW,
    )
    ssl_protocol = string("ssl.protocol", "TLSv1.3", "The newest TLS version to use.", mode=PER_BROKER)
    ssl_provider = string("ssl.provider", None, "Java's provider of TLS.", mode=PER_BROKER, served=False)
    ssl_secure_random_implementation = string(
        "ssl.secure.random.implementation",
        None,
        "Java's source of random numbers for TLS.",
        importance=LOW,
        mode=PER_BROKER,
        served=False,
    )
    ssl_trustmanager_algorithm = string(
        "ssl.trustmanager.algorithm", "PKIX", "Java's algorithm of the trust manager.", mode=PER_BROKER, served=False
    )
    ssl_truststore_certificates = password(
        "ssl.truststore.certificates", None, "The trusted certificates, as PEM.", mode=PER_BROKER
    )
    ssl_truststore_location = string(
        "ssl.truststore.location",
        None,
        "The file with the trusted certificates.",
        mode=PER_BROKER,
    )
    ssl_truststore_password = password(
        "ssl.truststore.password", None, "The password of the trust store's file.", mode=PER_BROKER
    )
    ssl_truststore_type = string(
        "ssl.truststore.type", "JKS", "The format of the trust store: PEM, PKCS12 or JKS.", mode=PER_BROKER
    )
    security_providers = string(
        "security.providers", None, "Java classes that provide security.", importance=LOW, served=False
    )
    principal_builder_class = class_name(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "An entry point of ottla.principal_builders that gives clients their principals; by default Kafka's rules. "
        "Only in the file: a dynamic value is refused.",
        mode=PER_BROKER,
    )
    delegation_token_expiry_check_interval_ms = long(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        "How often expired delegation tokens are removed.",
        POSITIVE,
        LOW,
    )
    delegation_token_expiry_time_ms = long(
        "delegation.token.expiry.time.ms",
        86_400_000,
        "How long a delegation token is valid before it must be renewed.",
        POSITIVE,
    )
    delegation_token_max_lifetime_ms = long(
        "delegation.token.max.lifetime.ms",
        604_800_000,
        "The maximum lifetime of a delegation token, including renewals.",
        POSITIVE,
    )
    delegation_token_secret_key = password(
        "delegation.token.secret.key",
        None,
        "The secret that signs delegation tokens; it must be the same on all nodes.",
    )
    sasl_enabled_mechanisms = listing(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        "The enabled SASL mechanisms.",
        LIST,
        mode=PER_BROKER,
    )
    sasl_mechanism_controller_protocol = string(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        "The SASL mechanism of brokers at controllers.",
        importance=HIGH,
    )
    sasl_mechanism_inter_broker_protocol = string(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        "The SASL mechanism between brokers.",
        mode=PER_BROKER,
    )
    sasl_jaas_config = password("sasl.jaas.config", None, "Users and passwords in Java's JAAS format.", mode=PER_BROKER)
    sasl_client_callback_handler_class = class_name(
        "sasl.client.callback.handler.class",
        None,
        "A Java class that handles the client side of SASL authentication.",
        served=False,
    )
    sasl_server_callback_handler_class = class_name(
        "sasl.server.callback.handler.class",
        None,
        "The Java class of the server side of SASL; Kafka's two for OAUTHBEARER are supported.",
    )
    sasl_server_max_receive_size = integer(
        "sasl.server.max.receive.size", 524_288, "The maximum size of a SASL message in bytes."
    )
    sasl_login_callback_handler_class = class_name(
        "sasl.login.callback.handler.class",
        None,
        "The Java class of a login; Kafka's OAuthBearerLoginCallbackHandler is supported.",
    )
    sasl_login_class = class_name("sasl.login.class", None, "A Java class that logs in.", served=False)
    sasl_login_connect_timeout_ms = integer(
        "sasl.login.connect.timeout.ms",
        None,
        "How long connecting to the token provider may take.",
        importance=LOW,
        served=False,
    )
    sasl_login_read_timeout_ms = integer(
        "sasl.login.read.timeout.ms",
        None,
        "How long the token provider may take to respond.",
        importance=LOW,
        served=False,
    )
    sasl_login_refresh_buffer_seconds = short(
        "sasl.login.refresh.buffer.seconds",
        300,
        "The latest renewal of a credential, before its expiry.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_min_period_seconds = short(
        "sasl.login.refresh.min.period.seconds",
        60,
        "The earliest renewal of a credential, after its login.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_window_factor = double(
        "sasl.login.refresh.window.factor",
        0.8,
        "The fraction of a credential's lifetime after which it is renewed.",
        mode=PER_BROKER,
    )
    sasl_login_refresh_window_jitter = double(
        "sasl.login.refresh.window.jitter",
        0.05,
        "The maximum random jitter of the renewal, as a fraction of the lifetime.",
        mode=PER_BROKER,
    )
    sasl_login_retry_backoff_max_ms = long(
        "sasl.login.retry.backoff.max.ms",
        10_000,
        "The maximum backoff between two attempts to reach the token provider.",
        importance=LOW,
    )
    sasl_login_retry_backoff_ms = long(
        "sasl.login.retry.backoff.ms",
        100,
        "The initial backoff between two attempts to reach the token provider.",
        importance=LOW,
    )
    sasl_kerberos_kinit_cmd = string(
        "sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "The path of Kerberos' kinit.", mode=PER_BROKER, served=False
    )
    sasl_kerberos_min_time_before_relogin = long(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        "How long Kerberos waits between two logins, in milliseconds.",
        mode=PER_BROKER,
        served=False,
    )
    sasl_kerberos_principal_to_local_rules = listing(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        "Rules that map a Kerberos principal to a user name.",
        LIST,
        mode=PER_BROKER,
    )
    sasl_kerberos_service_name = string(
        "sasl.kerberos.service.name",
        None,
        "The Kerberos service name of the brokers.",
        mode=PER_BROKER,
    )
    sasl_kerberos_ticket_renew_jitter = double(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        "The random jitter of a ticket's renewal.",
        mode=PER_BROKER,
        served=False,
    )
    sasl_kerberos_ticket_renew_window_factor = double(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        "The fraction of a ticket's lifetime after which it is renewed.",
        mode=PER_BROKER,
        served=False,
    )
