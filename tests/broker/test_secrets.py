"""Secrets of a node stand in no log line, no described setting and no error."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import ottla
from ottla.client import (
    Admin,
    AuthenticationFailed,
    ConfigResource,
    OttlaError,
    ResourceType,
    ScramCredential,
    ScramMechanism,
)
from tests.broker.tls_scene import MODULE, address, client, settings
from tests.client import certificate

STORE, KEY, LOGIN, USER, DYNAMIC, SCRAM = (
    f"{name}-s3cret" for name in ("store", "key", "login", "user", "dyn", "scram")
)
SECRETS = (STORE, KEY, LOGIN, USER, DYNAMIC, SCRAM)


def test_secrets_are_told_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = certificate.make(tmp_path / "certificates")
    exported = ("-export", "-in", str(files.broker), "-out", "key.p12", "-passout", f"pass:{STORE}")
    certificate.run(tmp_path, "openssl", "pkcs12", *exported)
    encrypted = ("-topk8", "-in", str(files.broker), "-out", "broker.key", "-passout", f"pass:{KEY}")
    certificate.run(tmp_path, "openssl", "pkcs8", *encrypted)
    chain = files.broker.read_text()
    chain = chain[chain.index("-----BEGIN CERTIFICATE") :]
    given = settings(
        files,
        **{
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(tmp_path / "key.p12"),
            "ssl.keystore.password": STORE,
            "listener.name.open.ssl.keystore.type": "PEM",
            "listener.name.open.ssl.keystore.location": "",
            "listener.name.open.ssl.keystore.password": "",
            "listener.name.open.ssl.keystore.key": (tmp_path / "broker.key").read_text(),
            "listener.name.open.ssl.keystore.certificate.chain": chain,
            "listener.name.open.ssl.key.password": KEY,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{MODULE} username="broker" password="{LOGIN}" user_ann="{USER}";'
            ),
        },
    )
    told: list[str] = []
    caplog.set_level(logging.DEBUG)
    key_line = (tmp_path / "broker.key").read_text().splitlines()[2]
    with ottla.Node(settings=given) as node, Admin(address(node, "PLAINTEXT")) as admin:
        admin.alter_scram_credentials([ScramCredential("ann", ScramMechanism.SCRAM_SHA_512, SCRAM)]).check()
        itself = ConfigResource(ResourceType.BROKER, "1")
        name = "listener.name.ssl.ssl.keystore.password"
        told.append(str(admin.alter_configs({itself: {name: DYNAMIC}}).errors))
        line = f'{MODULE} user_ann="{DYNAMIC}";'
        told.append(str(admin.alter_configs({itself: {"listener.name.sasl_ssl.plain.sasl.jaas.config": line}}).errors))
        for mechanism, password in (("PLAIN", DYNAMIC), ("SCRAM-SHA-512", SCRAM)):
            said = {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": password}
            with Admin(client(node, "SASL_SSL", files, **said)) as signed_in:
                told.append(str(signed_in.describe_cluster()))
        wrong = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": USER + "x"}
        with Admin(client(node, "SASL_SSL", files, **wrong)) as refused, pytest.raises(AuthenticationFailed) as error:
            refused.list_topics()
        told.append(str(error.value))
        told.append(str(admin.describe_configs([itself])))
        told.append(str(admin.describe_scram_credentials(["ann"])))
        told.append(repr(node))
    for mistake in (
        {"ssl.keystore.password": LOGIN},
        {"listener.name.open.ssl.key.password": LOGIN},
        {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} user_ann="{USER}'},
        {"ssl.truststore.password": STORE},
    ):
        with pytest.raises(OttlaError) as mistaken:
            ottla.Node(settings=given | mistake).start()
        told.append(str(mistaken.value))
    told.append(caplog.text)
    everything = "\n".join(told)
    assert "AUTHENTICATION_FAILED" in everything or "sign-in of" in everything
    assert [each for each in (*SECRETS, key_line) if each in everything] == []
