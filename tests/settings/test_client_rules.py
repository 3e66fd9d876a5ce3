"""Settings of clients: how they are given, what is refused in which words, and what fits together."""

from typing import Any

import pytest

from ottla.kernel.error import OttlaError
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.schema import long

SERVERS = "127.0.0.1:9092"
TLS = {"bootstrap.servers": SERVERS, "security.protocol": "SSL"}
SASL = {"bootstrap.servers": SERVERS, "security.protocol": "SASL_PLAINTEXT"}
PLAIN = SASL | {"sasl.mechanism": "PLAIN"}


def read(given: Any = None, **keywords: Any) -> Any:
    return ClientSettings.read(given, keywords)


def test_settings_are_given_as_a_mapping_and_as_keywords_which_win() -> None:
    found = read({"bootstrap.servers": SERVERS, "client.id": "a"}, client_id="b")
    assert found.client_id == "b"
    assert read(SERVERS).bootstrap_servers == read([SERVERS]).bootstrap_servers == found.bootstrap_servers
    assert set(found.given) == {"bootstrap_servers", "client_id"}
    assert repr(found).startswith("ClientSettings(") and "client.id='b'" in repr(found)
    with pytest.raises(AttributeError, match="settings are immutable"):
        found.client_id = "c"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "a client takes host:port, a list of these, or a mapping of settings, not int: 7"),
        ({7: "a"}, "a setting's name is a str, not int: 7"),
    ],
)
def test_what_is_no_setting_is_a_mistake_of_the_program(given: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        read(given)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "bootstrap.servers is missing: name at least one broker"),
        ({"client.idd": "a"}, "there is no client setting client.idd; did you mean client.id?"),
        ({"wholly.other": "a"}, "there is no client setting wholly.other: these are "),
        ({"retry.backoff.ms": "soon"}, "invalid value for retry.backoff.ms: 'soon' (expected a whole number"),
        ({"retry.backoff.ms": -1}, "invalid value for retry.backoff.ms: -1 (expected a whole number of at least 0"),
        (
            TLS | {"ssl.truststore.certificates": "a", "ssl.truststore.location": "/b"},
            "ssl.truststore.location and ssl.truststore.certificates are alternatives: remove one",
        ),
        (
            TLS | {"ssl.context": object(), "ssl.ca.location": "/a"},
            "ssl.context replaces all ssl.* settings: remove ssl.ca.location",
        ),
        (TLS | {"ssl.key.location": "/k"}, "ssl.key.location and ssl.certificate.location must be set together"),
        (TLS | {"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type=PKCS12 needs ssl.truststore.location"),
        (TLS | {"ssl.keystore.type": "JKS"}, "ssl.keystore.type=JKS needs ssl.keystore.location"),
        (
            TLS | {"ssl.keystore.type": "PEM", "ssl.keystore.password": "x"},
            "ssl.keystore.password has no effect with ssl.keystore.type=PEM; use PKCS12 or JKS",
        ),
        (SASL, "security.protocol=SASL_PLAINTEXT needs sasl.mechanism: PLAIN, "),
        (PLAIN, "PLAIN needs sasl.username and sasl.password (or both in sasl.jaas.config)"),
        (PLAIN | {"sasl.username": "a"}, "PLAIN needs sasl.username and sasl.password"),
        (PLAIN | {"sasl.username": "", "sasl.password": "b"}, "PLAIN needs sasl.username and sasl.password"),
        (SASL | {"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token (a function that"),
        ({"bootstrap.servers": SERVERS, "sasl.mechanism": "PLAIN"}, "sasl.mechanism has no effect with security.prot"),
        ({"bootstrap.servers": SERVERS, "ssl.ca.location": "/a"}, "ssl.ca.location has no effect with security.prot"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OttlaError) as caught:
        read(given)
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


def test_a_user_is_named_by_settings_or_by_jaas() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    jaas = f'{module} username="a\\"b" password="p\\\\q" tokenauth="true";'
    found = read(PLAIN | {"sasl.jaas.config": jaas})
    assert found.user == ('a"b', "p\\q", True)
    assert read(PLAIN | {"sasl.jaas.config": jaas, "sasl.username": "c"}).user == ("c", "p\\q", True)
    assert read(PLAIN | {"sasl.username": "c", "sasl.password": "d"}).user == ("c", "d", False)
    assert read(PLAIN | {"sasl.jaas.config": jaas.replace("true", "false")}).user[2] is False


def test_a_number_has_as_many_bits_as_its_kind() -> None:
    reader = long(at_least=-(1 << 70))
    assert reader((1 << 63) - 1) == (1 << 63) - 1 and reader(str(-(1 << 63))) == -(1 << 63)
    for beyond in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="of 64 bits"):
            reader(beyond)
    bounded = long(at_least=1, at_most=3)
    assert [bounded(number) for number in (1, "3")] == [1, 3]
    for outside in (0, 4, "x"):
        with pytest.raises(ValueError, match=r"^a whole number of at least 1 and at most 3$"):
            bounded(outside)
