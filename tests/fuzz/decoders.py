"""The decoders of bytes that come from outside: from clients, brokers, registries, providers and files."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import partial
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from ottla.broker.observe.otlp import NotOtlp, read_points
from ottla.client.assignment import consumer_protocol
from ottla.client.connection.otlp import Point, metrics_data
from ottla.group.records import subscription
from ottla.kernel.error import KafkaError, OttlaError
from ottla.log import checkpoint
from ottla.log.producer import snapshot
from ottla.log.producer.marker import read_marker
from ottla.log.producer.producer import ProducerStateEntry, SentBatch
from ottla.log.segment.aborted import read_entries
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.raft.checkpoint import BrokenCheckpoint, Membership, decode_checkpoint, encode_checkpoint
from ottla.security.bearer import TokenRefused, verify_bearer
from ottla.security.certificate import identity_of
from ottla.security.claims import UnsecuredRules
from ottla.security.jaas import parse_jaas
from ottla.security.key_set import KeySet
from ottla.security.keystore import read_store
from ottla.security.scram import ScramRefused, scram
from ottla.security.verify import SignInRefused, Verification, verify_plain, verify_scram
from ottla.serde.confluent import prefix, split_prefix
from ottla.settings import properties
from ottla.sim.disk import SimDisk
from ottla.wire import batch
from ottla.wire.checksum import crc32c
from ottla.wire.codec import Codec, compress, decompress
from ottla.wire.compile import decoder, encode
from ottla.wire.record import control, metadata, offset, share, transaction
from ottla.wire.record.control import (
    ControlRecordType,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.wire.record.keyed import Keyed
from ottla.wire.record.metadata import UserScramCredentialRecord
from ottla.wire.schema import schema
from ottla.wire.type import Malformed
from ottla.wire.walk import walk
from tests.fuzz.feed import Decoder
from tests.security.token_scene import unsecured
from tests.wire.value import classes, message

_NOW_MS = 1_700_000_000_000
_BEGINNING, _END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
_WRITTEN = (KafkaError,)
Decoders = Generator[Decoder, None, None]


def all_decoders() -> dict[str, Decoder]:
    """Every decoder by its name."""
    families = (_messages, _batches, _coordinators, _metadata, _members, _sign_ins, _tokens, _stores, _files, _texts)
    return {each.name: each for family in families for each in family()}


def _messages() -> Decoders:
    """Requests, responses, headers and the records of our logs, a decoder each. The first byte gives the version."""
    for name, cls in classes().items():
        versions = list(schema(cls).versions or ())
        rng = Random(name)
        golden = [
            bytes([at]) + encode(message(cls, version, rng, unknown=True), version)
            for at, version in enumerate(versions)
            for _ in range(2)
        ]
        yield Decoder(f"message {name}", golden, _by_version(cls, versions), (Malformed,))


def _by_version(cls: Any, versions: list[int]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        return decoder(cls, versions[data[0] % len(versions)])(data, 1) if data else None

    return read


def _batches() -> Decoders:
    """Record batches of each codec, their records, the codecs alone, transaction markers."""
    rng = Random(1)
    records = [(_NOW_MS + at, rng.randbytes(at) or None, b"value" * at, [("h", b"x"), ("", None)]) for at in range(9)]
    plain = b"plain text, plain text" * 40
    for codec in Codec:
        golden = [batch.build(records[:count], codec=codec) for count in (1, 2, 9)]
        yield Decoder(f"batch {codec.name}", golden, _read_batches, _WRITTEN)
        yield Decoder(f"walk {codec.name}", golden, _walk_batch, _WRITTEN)
        yield Decoder(f"codec {codec.name}", [compress(codec, plain)], partial(decompress, codec), _WRITTEN)
    marker = batch.build([(_NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\7", ())], control=True, transactional=True)
    yield Decoder("check", [marker], batch.check, _WRITTEN)
    yield Decoder("marker", [marker], lambda data: read_marker(data, batch.header_at(data)), _WRITTEN)


def _read_batches(data: bytes) -> None:
    for each in batch.read(data):
        each.records()


def _walk_batch(data: bytes) -> None:
    for _ in walk(batch.header_at(data), data, whole_records=True):
        pass


def _coordinators() -> Decoders:
    """Keys and values of the coordinators' logs. Two bytes before them are the key's length."""
    for name, keyed in (("offset", offset.RECORDS), ("transaction", transaction.RECORDS), ("share", share.RECORDS)):
        rng, golden = Random(name), []
        for key, value in keyed.types.values():
            for version in schema(value).versions or ():
                first = keyed.key_bytes(message(key, 0, rng))
                second = keyed.value_bytes(message(value, version, rng), version)
                golden.append(len(first).to_bytes(2, "big") + first + (second or b""))
        yield Decoder(f"log of {name}s", golden, _keyed(keyed), (Malformed,))


def _keyed(keyed: Keyed) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        end = 2 + int.from_bytes(data[:2], "big")
        return keyed.parse(data[2:end], data[end:] or None)

    return parse


def _metadata() -> Decoders:
    """Records of the metadata log, control records, snapshots, what clients push of themselves."""
    rng = Random(2)
    records = [
        metadata.pack(message(cls, version, rng), version)
        for cls in metadata.RECORDS.values()
        for version in schema(cls).versions or ()
    ]
    yield Decoder("metadata record", records, metadata.parse, (Malformed,))
    kinds = {
        ControlRecordType.COMMIT: EndTxnMarker,
        ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
        ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
        ControlRecordType.KRAFT_VOTERS: VotersRecord,
    }
    pairs = [(control.key_bytes(kind), control.value_bytes(message(cls, 0, rng))) for kind, cls in kinds.items()]
    yield Decoder("control record", [key + value for key, value in pairs], _control, (Malformed,))
    whole = b"".join(
        encode_checkpoint(records[:9], Membership(), epoch=3, last_contained_log_timestamp=5, now_ms=_NOW_MS)
    )
    yield Decoder("snapshot", [whole], lambda data: decode_checkpoint(_sealed_batches(data)), (BrokenCheckpoint,))
    points = [Point("org.apache.kafka.a", (("topic", "t"),), 2.5, is_sum) for is_sum in (True, False)]
    pushed = metrics_data({"group": "g"}, points, now_ns=2, delta=True)
    yield Decoder("pushed metrics", [pushed], lambda data: list(read_points(data)), (NotOtlp, struct.error))


def _control(data: bytes) -> object:
    return control.parse(data[:4], data[4:])


def _sealed_batches(data: bytes) -> bytes:
    """The batches' checksums are made right as far as their lengths can be followed."""
    sealed, at = bytearray(data), 0
    while len(sealed) - at >= batch.HEADER_BYTES:
        end = at + batch.header_at(sealed, at).size
        if not at + batch.HEADER_BYTES <= end <= len(sealed):
            break
        sealed[at + 17 : at + 21] = crc32c(bytes(sealed[at + batch.CRC_START : end])).to_bytes(4, "big")
        at = end
    return bytes(sealed)


def _members() -> Decoders:
    """What consumers say to each other through the coordinator: read by the node, and by a client."""
    for kind in ("Subscription", "Assignment"):
        cls = classes()[f"ConsumerProtocol{kind}"]
        rng = Random(kind)
        golden = [
            version.to_bytes(2, "big") + encode(message(cls, version, rng), version)
            for version in schema(cls).versions or ()
        ]
        ours = subscription.read_subscription if kind == "Subscription" else subscription.read_assignment
        theirs = getattr(consumer_protocol, f"parse_{kind.lower()}")
        yield Decoder(f"{kind.lower()} at a node", golden, ours, (Malformed,))
        yield Decoder(f"{kind.lower()} in a client", golden, theirs, _WRITTEN)


def _sign_ins() -> Decoders:
    """SASL's messages of both sides. A line each; what a node tells of a refusal must have a form in UTF-8."""
    kept = UserScramCredentialRecord(salt=b"salt", stored_key=b"s" * 32, server_key=b"k" * 32, iterations=4096)
    proof = base64.b64encode(bytes(32))
    first = b"n,,n=ann,r=fyko"
    yield Decoder(
        "PLAIN", [b"\0ann\0secret", b"ann\0ann\0secret"], _server(lambda: verify_plain({"ann": "secret"})), _REFUSED
    )
    yield Decoder(
        "SCRAM of a client",
        [first + b"\nc=biws,r=fykoours,p=" + proof, b"n,a=ann,n=a=2Cn,r=f,tokenauth=true\nc=biws,r=fours,p=" + proof],
        _server(lambda: verify_scram("SCRAM-SHA-256", lambda name: kept, "ours")),
        _REFUSED,
    )
    yield Decoder(
        "SCRAM of a broker",
        [b"r=fykoours,s=c2FsdA==,i=4096\nv=" + proof, b"r=fykoours,s=c2FsdA==,i=4096\ne=no"],
        _client,
        (ScramRefused,),
    )
    rules = UnsecuredRules("sub", "scope", (), 0)
    golden = [
        b"n,,\1auth=Bearer " + unsecured(sub=user, exp=exp, iat=0, scope=["a"]).encode() + b"\1x=y\1\1\n\1"
        for user in ("ann", "caf\u00e9")
        for exp in (2e9, 10**12)
    ]
    yield Decoder(
        "OAUTHBEARER",
        golden,
        _server(lambda: verify_bearer(lambda token: rules.check(token, _NOW_MS), lambda: _NOW_MS)),
        _REFUSED,
    )


_REFUSED = (SignInRefused,)


def _server(start: Callable[[], Verification]) -> Callable[[bytes], object]:
    def exchange(data: bytes) -> None:
        machine = start()
        next(machine)
        try:
            for line in data.split(b"\n", 1):
                machine.send(line)
        except StopIteration as ended:
            ended.value.user.encode()
        except SignInRefused as refused:
            (refused.told or "").encode()
            raise

    return exchange


def _client(data: bytes) -> None:
    machine = scram("SCRAM-SHA-256", "ann", "secret", "fyko")
    next(machine)
    try:
        for line in data.split(b"\n", 1):
            machine.send(line)
    except StopIteration:
        pass


def _tokens() -> Decoders:
    """Tokens before anything is known of them: unsecured ones by their claims, signed ones by a key; the key sets."""
    rules = UnsecuredRules("sub", "scope", (), 0)
    claims = [
        json.dumps(said).encode() for said in ({"sub": "ann", "exp": 2e9, "iat": 0}, {"sub": "\ud800", "exp": 2e9})
    ]
    yield Decoder("claims", claims, lambda data: _unsecured(rules, data), (TokenRefused,))
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    known = json.loads(OKPAlgorithm.to_jwk(key.public_key()))
    keys = json.dumps({"keys": [{**known, "kid": "1", "use": "sig", "alg": "EdDSA"}]}).encode()
    signed = jwt.encode({"sub": "ann"}, key, "EdDSA", {"kid": "1"}).encode()
    key_set = KeySet.parse(keys)
    numbers = ec.derive_private_key(7, ec.SECP256R1()).public_key()
    sets = [keys, json.dumps({"keys": [json.loads(ECAlgorithm.to_jwk(numbers))]}).encode()]
    yield Decoder(
        "signed token", [signed], lambda data: key_set.payload(data.decode(errors="replace")), (TokenRefused,)
    )
    yield Decoder("key set", sets, KeySet.parse, (OttlaError,))


def _unsecured(rules: UnsecuredRules, claims: bytes) -> None:
    """The claims stand in a token that is whole."""
    parts = (base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (b'{"alg":"none"}', claims))
    rules.check(".".join((*parts, "")), _NOW_MS).user.encode()


def _stores() -> Decoders:
    """Certificates and Java's stores."""
    key = ec.derive_private_key(7, ec.SECP256R1())
    signer = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    name = x509.Name.from_rfc4514_string("CN=ann,OU=a\\,b,O=caf\u00e9,C=DE")
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, _BEGINNING, _END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("ann"), x509.DNSName("b")]), critical=False)
        .sign(signer, None)
    )
    der = made.public_bytes(Encoding.DER)
    yield Decoder("certificate", [der], identity_of, (ValueError,))
    own = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    yield Decoder("JKS", [_jks(der, own)], _in_file, (OttlaError,))
    sealed = pkcs12.serialize_key_and_certificates(b"ann", key, made, None, NoEncryption())
    # The store's own check has a random salt. It is left out, and every run has the same bytes.
    end = 11 + int.from_bytes(sealed[9:11], "big")
    store = b"\x30\x82" + (end - 4).to_bytes(2, "big") + sealed[4:end]
    yield Decoder("PKCS12", [store], _in_file, (OttlaError,))


def _jks(certificate: bytes, key: bytes) -> bytes:
    """A store with a trusted certificate and a private key under the password "", its own check left out."""
    salt = block = bytes(20)
    stream = b""
    while len(stream) < len(key):
        block = hashlib.sha1(block, usedforsecurity=False).digest()
        stream += block
    check = hashlib.sha1(key, usedforsecurity=False).digest()
    secret = salt + bytes(one ^ other for one, other in zip(key, stream, strict=False)) + check
    octets = b"\x04\x82" + len(secret).to_bytes(2, "big") + secret
    sealed = b"\x30\x82" + (2 + len(octets)).to_bytes(2, "big") + b"\x30\x00" + octets
    chained = b"\0\5X.509" + len(certificate).to_bytes(4, "big") + certificate
    head = b"\0\1a" + bytes(8)
    own = b"\0\0\0\1" + head + len(sealed).to_bytes(4, "big") + sealed + b"\0\0\0\1" + chained
    return b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\2" + own + b"\0\0\0\2" + head + chained + bytes(20)


def _in_file(data: bytes) -> None:
    with NamedTemporaryFile(buffering=0) as file:
        file.write(data)
        read_store(file.name, None)


def _files() -> Decoders:
    """The small files beside the logs."""
    producers = ProducerStateEntry()
    producers.sent.append(SentBatch(3, 7, 2, _NOW_MS))
    yield Decoder("producer snapshot", [snapshot.encode({5: producers})], _sealed_snapshot, (snapshot.CorruptSnapshot,))
    numbers = b"".join(at.to_bytes(4, "big") for at in range(1, 41))
    disk = SimDisk(Random(1))
    disk.make_directory("/d")
    offsets = OffsetIndex(disk, "/d/f", 0, 1 << 20)
    times = TimeIndex(disk, "/d/f", 0, 1 << 20)
    # A damaged index is made again from its log: none of its bytes is an error.
    for name, golden, read, errors in (
        ("offset index", numbers, lambda: _loaded(offsets), ()),
        ("time index", numbers[:156], lambda: _loaded(times), ()),
        (
            "aborted transactions",
            bytes(34) + b"\0\0" + bytes(range(32)),
            lambda: read_entries(disk, "/d/f"),
            (ValueError,),
        ),
        ("offset checkpoint", b"0\n2\nt 0 5\nu 1 7\n", lambda: checkpoint.read_offsets(disk, "/d/f"), _CORRUPT),
        ("epoch checkpoint", b"0\n2\n0 0\n4 77\n", lambda: checkpoint.read_epochs(disk, "/d/f"), _CORRUPT),
        (
            "topic id",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
            lambda: checkpoint.read_topic_id(disk, "/d"),
            _CORRUPT,
        ),
        ("node's properties", b"#\nversion=1\nnode.id=1\n", lambda: checkpoint.read_properties(disk, "/d/f"), _CORRUPT),
        ("clean shutdown", b'{"brokerEpoch":5}', lambda: checkpoint.clean_shutdown_epoch(disk, ["/d"]), ()),
    ):
        path = {"topic id": "/d/partition.metadata", "clean shutdown": f"/d/{checkpoint.CLEAN_SHUTDOWN}"}.get(
            name, "/d/f"
        )
        yield Decoder(name, [golden], _on_disk(disk, path, read), errors)


_CORRUPT = (checkpoint.CorruptCheckpoint,)


def _sealed_snapshot(data: bytes) -> object:
    """The checksum is made right, so that what is behind it is read."""
    return snapshot.decode(data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:])


def _loaded(index: OffsetIndex | TimeIndex) -> object:
    index.contents = (None, index.contents[1], 0)
    return len(index)


def _on_disk(disk: SimDisk, path: str, read: Callable[[], object]) -> Callable[[bytes], object]:
    def replaced(data: bytes) -> object:
        file = disk.open(path, create=True)
        file.truncate(0)
        file.write(data, 0)
        file.close()
        return read()

    return replaced


def _texts() -> Decoders:
    """What operators and registries write."""
    jaas = b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_b="c\\"d";'
    yield Decoder("JAAS", [jaas], lambda data: parse_jaas("sasl.jaas.config", _text(data)), (OttlaError,))
    lines = b"# c\na=b\\\n c\n\\u0041 : d\\t\n! e\n"
    yield Decoder("properties", [lines], lambda data: properties.read(_text(data)), (OttlaError,))
    yield Decoder("Confluent's prefix", [prefix(7) + b"value"], split_prefix, (OttlaError,))


def _text(data: bytes) -> str:
    return data.decode("latin-1")
