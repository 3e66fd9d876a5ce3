"""Bundles: what is masked, what stays, what is bounded, and what is listed as missing."""

from __future__ import annotations

import gc
import json
import os
import tarfile
from pathlib import Path
from threading import Event

import pytest

from ottla.kernel.error import OttlaError
from ottla.operations.bundle import archive
from ottla.operations.bundle.archive import Bundle
from ottla.operations.bundle.cluster import plain
from ottla.operations.bundle.mask import HIDDEN, Mask

PEM = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIEvQIBADANBgkqh\n-----END ENCRYPTED PRIVATE KEY-----"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="pl4nted";'


@pytest.mark.parametrize(
    "text",
    [
        "password=pl4nted",
        'ssl.keystore.password = "pl4nted"',
        "{'sasl.password': 'pl4nted'}",
        '{"token": "pl4nted \\" pl4nted", "x": 1}',
        "retrying with SASL.PASSWORD:pl4nted now",
        "delegation.token.secret.key=pl4nted",
        "Authorization: Bearer pl4nted-pl4nted",
        "Authorization: Basic cGw0bnRlZA+pl4nted==",
        "sent Bearer pl4nted.pl4nted/+",
        "eyJhbGciOiJIUzI1NiJ9.pl4ntedpl4nted.pl4nted_-",
        "https://ann:pl4nted@keys.example/jwks",
        f"sasl.jaas.config={JAAS}",
        JAAS.replace('"', "'"),
        JAAS.replace("pl4nted", "a;pl4nted"),
        JAAS.replace('"', "'").replace("pl4nted", "a;pl4nted"),
        JAAS.replace('"', '\\"').replace("pl4nted", "a;pl4nted"),
        PEM.replace("MIIE", "pl4nted"),
        f"pl4nted\n-----END PRIVATE KEY-----\nfine\n{PEM}",
        "-----BEGIN PRIVATE KEY-----\npl4nted and the end is cut",
        "name=ann,password=pl4nted]",
        "hmac: pl4nted",
        'password="pl4nted and a quote that does not end',
    ],
)
def test_words_for_secrets_hide_what_follows(text: str) -> None:
    assert "pl4nted" not in Mask().text(text)
    assert HIDDEN in Mask().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "node 1 ready on 127.0.0.1:9092, 127.0.0.1:9093 in 312 ms, data in /var/lib/ottla",
        "sasl.oauthbearer.token.endpoint.url=https://keys.example/token",
        "slow request: Produce v13 took 1520.1 ms (queue 0.0), client 'billing' of 10.0.0.7:51302, User:ann",
        'kafka_network_request_bytes_total{request="DescribeDelegationToken"} 0',
        "ssl.keystore.location=/etc/ottla/key.p12",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Mask().text(text) == text


def test_settings_are_shown_when_they_are_declared_open() -> None:
    mask = Mask()
    given = {
        "log.dirs": "/data",
        "ssl.keystore.password": "storepass",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS + ' user_ben="b\\"en5";',
        "plugin.secret": "pluginpass",
        "plugin.mode": "fast",
        "ssl.keystore.key": f"{PEM.splitlines()[0]} x\n{'A' * 40}\n{'B' * 40}",
    }
    mask.learn_settings(given)
    assert [name for name, value in given.items() if mask.setting(name, value) == value] == ["log.dirs"]
    told = mask.text(f"storepass pluginpass fast pl4nted ann {'A' * 40} xx{'B' * 40}")
    assert told == f"{HIDDEN} {HIDDEN} fast {HIDDEN} ann {HIDDEN} xx{HIDDEN}"
    assert mask.value({"a": ["storepass", 1], "password": "x", "b": {"storepass": None}}) == {
        "a": [HIDDEN, 1],
        "password": HIDDEN,
        "b": {HIDDEN: None},
    }


def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    mask = Mask()
    mask.learn("1234")
    assert mask.text("offset 123456, 1234!") == f"offset 123456, {HIDDEN}!"
    mask.learn("ab")
    assert mask.text("about") == "about"


def test_each_line_of_a_key_is_hidden() -> None:
    mask = Mask()
    mask.learn("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n")
    assert mask.text("line 2: BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj") == f"line 2: {HIDDEN}"
    assert mask.text("line 1: MIIEvQIBADANBgkqhkiG9w0BAQEFAASC") == f"line 1: {HIDDEN}"


def _files(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        members = [(each.name.partition("/")[2], tar.extractfile(each)) for each in tar]
        return {name: file.read().decode() for name, file in members if file is not None}


def test_a_part_that_fails_or_hangs_or_is_too_long_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_FILE_BYTES_MAX", 1000)
    path, never, mask = tmp_path / "b.tar.gz", Event(), Mask()
    mask.learn("pl4nted")

    def rows() -> object:
        yield {"row": 1}
        never.wait()

    def broken() -> str:
        raise OttlaError("the disk of pl4nted is gone")

    with Bundle(path, mask, bytes_max=1 << 20, seconds=60) as bundle:
        bundle.text("broken.txt", "", broken)
        with monkeypatch.context() as short:
            # Long enough for a first row on a busy machine.
            short.setattr(archive, "_PART_SECONDS", 2.0)
            bundle.rows("partly.jsonl", "", rows)  # type: ignore[arg-type]
            short.setattr(archive, "_PART_SECONDS", 0.1)
            bundle.document("hangs.json", "", never.wait)
        bundle.rows("many.jsonl", "", lambda: [{"row": each} for each in range(1000)])
        bundle.text("log.txt", "", lambda: "x" * 1000 + "the end")
        bundle.document("large.json", "", lambda: "x" * 2000)
        bundle.document("wrong.json", "", lambda: 1 / 0)
        bundle.document("good.json", "what it is", lambda: {"a": "pl4nted"})
    never.set()
    files = _files(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert files["good.json"] == json.dumps({"a": HIDDEN}, indent=2) + "\n"
    assert (files["partly.jsonl"], files["log.txt"][-7:], len(files["log.txt"])) == ('{"row": 1}\n', "the end", 1000)
    assert 50 < files["many.jsonl"].count("\n") < 100
    missing = json.loads(files["missing.json"])
    assert sorted(missing) == [
        "broken.txt",
        "hangs.json",
        "large.json",
        "log.txt",
        "many.jsonl",
        "partly.jsonl",
        "wrong.json",
    ]
    assert missing["broken.txt"] == f"the disk of {HIDDEN} is gone"
    assert "ZeroDivisionError" in missing["wrong.json"]
    assert "longer than" in missing["hangs.json"]
    assert all(f"{name}: {why}" in files["README.txt"] for name, why in missing.items())
    assert "good.json" in files["README.txt"] and "hangs.json" not in files


def test_the_time_and_the_bytes_of_all_parts_are_bounded(tmp_path: Path) -> None:
    with Bundle(tmp_path / "b.tar.gz", Mask(), bytes_max=70_000, seconds=60) as bundle:
        bundle.text("first.txt", "", lambda: "x" * 4000)
        bundle.text("second.txt", "", lambda: "x" * 4000)
        bundle.text("third.txt", "", lambda: "x" * 4000)
    assert "cut" in bundle.missing["second.txt"]
    assert "too long" in bundle.missing["third.txt"]
    with Bundle(tmp_path / "c.tar.gz", Mask(), bytes_max=1 << 20, seconds=0) as bundle:
        bundle.text("first.txt", "", lambda: "x")
    assert bundle.missing == {"first.txt": "not collected: the time for the bundle is over (--timeout)"}


def test_a_file_that_is_there_is_kept_and_one_that_is_not_finished_goes(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    with pytest.raises(OttlaError, match="already exists"):
        Bundle(path, Mask(), bytes_max=1 << 20, seconds=1)
    assert path.read_text() == "mine"
    path.unlink()
    with pytest.raises(KeyboardInterrupt), Bundle(path, Mask(), bytes_max=1 << 20, seconds=1):
        raise KeyboardInterrupt
    assert not path.exists()
    gc.collect()


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    bundle = Bundle(path, Mask(), bytes_max=1 << 20, seconds=60)
    bundle.text("first.txt", "", lambda: os.urandom(30_000).hex())
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, bundle._file.fileno())
    os.close(full)
    with pytest.raises(OSError, match="No space left"), bundle:
        pass
    assert not path.exists()
    # What the archive held back is written nowhere when it is collected (Python 3.13 prints such errors).
    del bundle
    gc.collect()


def test_bytes_of_no_id_are_hidden() -> None:
    assert plain({"a": [b"secret", bytes(16)]}) == {"a": [HIDDEN, "AAAAAAAAAAAAAAAAAAAAAA"]}
