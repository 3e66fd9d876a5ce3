"""Format as `kafka-storage format` does it."""

import hashlib
import hmac
import re
from base64 import b64encode
from pathlib import Path
from random import Random

import pytest

from ottla.broker.metadata.format import format_directories, format_if_empty
from ottla.broker.metadata.format_argument import initial_voters, scram_records
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import uuid_text
from ottla.log.checkpoint import read_properties
from ottla.raft.checkpoint import decode_checkpoint
from ottla.sim.disk import SimDisk
from ottla.wire.record.metadata import parse
from tests.controller.place import CLUSTER_ID, Place

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def place() -> Place:
    return Place(SimDisk(Random(1)), "/one,/two")


def content(place: Place, path: str) -> bytes:
    file = place.disk.open(path)
    data: bytes = file.read(file.size(), 0)
    return data


def levels(place: Place) -> dict[str, int]:
    values = decode_checkpoint(content(place, "/one/bootstrap.checkpoint")).values
    return {each.name: each.feature_level for each, _ in map(parse, values)}


def test_every_directory_gets_its_ids_and_the_first_the_voters(place: Place) -> None:
    assert place.format() == [
        "Formatting dynamic metadata voter directory /one with metadata.version 4.3-IV0.",
        "Formatting data directory /two with metadata.version 4.3-IV0.",
    ]
    one, two = (read_properties(place.disk, f"{path}/meta.properties") or {} for path in ("/one", "/two"))
    for properties in (one, two):
        assert (properties["version"], properties["cluster.id"], properties["node.id"]) == ("1", CLUSTER_ID, "1")
    assert one["directory.id"] != two["directory.id"]
    assert place.disk.exists("/one/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
    assert not place.disk.exists("/two/__cluster_metadata-0")


def test_the_bootstrap_records_are_apaches(place: Place) -> None:
    place.format()
    theirs = decode_checkpoint((GOLDEN / "wire" / "bootstrap.checkpoint").read_bytes())
    assert decode_checkpoint(content(place, "/one/bootstrap.checkpoint")) == theirs


def test_what_is_formatted_is_left_alone(place: Place) -> None:
    place.format()
    before = content(place, "/one/meta.properties")
    with pytest.raises(OttlaError, match=r"Log directory /one is already formatted\. Use --ignore-formatted"):
        place.format()
    more = Place(place.disk, "/one,/two,/three")
    told = format_directories(
        more.disk, more.settings, CLUSTER_ID, clock=more.clock, rng=more.rng, standalone=True, ignore_formatted=True
    )
    assert told == ["Formatting data directory /three with metadata.version 4.3-IV0."]
    assert content(place, "/one/meta.properties") == before
    assert format_directories(
        more.disk, more.settings, CLUSTER_ID, clock=more.clock, rng=more.rng, standalone=True, ignore_formatted=True
    ) == ["All of the log directories are already formatted."]


def test_a_directory_of_another_cluster_or_node_is_refused(place: Place) -> None:
    place.format()
    other = Place(place.disk, "/one,/new", node_id="2")
    for cluster_id, message in (("another", r"Invalid cluster\.id in: /one/"), (CLUSTER_ID, "Stored node id 1")):
        with pytest.raises(OttlaError, match=message):
            format_directories(
                other.disk,
                other.settings,
                cluster_id,
                clock=other.clock,
                rng=other.rng,
                standalone=True,
                ignore_formatted=True,
            )
    assert not place.disk.exists("/new/meta.properties")


@pytest.mark.parametrize(
    ("broker_id", "why"), [("1", None), ("2", "Stored node id 2 doesn't match node id 1 in /one/")]
)
def test_a_directory_of_an_older_release_names_its_node_as_broker_id(
    place: Place, broker_id: str, why: str | None
) -> None:
    place.format()
    properties = content(place, "/one/meta.properties").replace(b"node.id=1", b"broker.id=" + broker_id.encode())
    file = place.disk.open("/one/meta.properties")
    file.truncate(0)
    file.write(properties, 0)
    if why is not None:
        with pytest.raises(OttlaError, match=why):
            place.format()
        return
    with pytest.raises(OttlaError, match="Log directory /one is already formatted"):
        place.format()


def test_a_release_and_features_are_chosen(place: Place) -> None:
    format_directories(
        place.disk,
        place.settings,
        CLUSTER_ID,
        clock=place.clock,
        rng=place.rng,
        standalone=True,
        release_version="4.0",
        features={"transaction.version": 1},
    )
    assert levels(place) == {"metadata.version": 25, "group.version": 1, "transaction.version": 1}
    with place.node() as log:
        assert log.image.metadata_version == 25
        assert not log.image.has_elr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"standalone": False}, "you must specify one of the following: --standalone"),
        ({"release_version": "9.9"}, r"Unknown metadata\.version '9\.9'"),
        ({"features": {"metadata.version": 99}}, r"No metadata\.version with feature level 99"),
        ({"features": {"metadata.version": 29}, "release_version": "4.2"}, "Use --release-version instead"),
        ({"features": {"kraft.version": 0}}, r"Cannot set kraft\.version to 0 if controller\.quorum\.voters is empty"),
        ({"features": {"kraft.version": 7}}, r"No feature level 7 of kraft\.version"),
        ({"features": {"speed.version": 1}}, r"Unsupported feature: speed\.version"),
    ],
)
def test_what_cannot_be_is_told_in_words_and_writes_nothing(
    place: Place, more: dict[str, object], message: str
) -> None:
    given: dict[str, object] = {"clock": place.clock, "rng": place.rng, "standalone": True} | more
    with pytest.raises(OttlaError, match=message):
        format_directories(place.disk, place.settings, CLUSTER_ID, **given)  # type: ignore[arg-type]
    assert not place.disk.exists("/one")


def test_the_id_must_be_given(place: Place) -> None:
    with pytest.raises(OttlaError, match="the cluster needs an id"):
        format_directories(place.disk, place.settings, "", clock=place.clock, rng=place.rng, standalone=True)


def test_fixed_voters_and_standalone_do_not_go_together() -> None:
    place = Place(SimDisk(Random(1)), controller_quorum_voters="1@127.0.0.1:9093")
    with pytest.raises(OttlaError, match="format the node with --initial-controllers or --standalone"):
        place.format()


def test_an_empty_directory_is_formatted_once(place: Place) -> None:
    assert format_if_empty(place.disk, place.settings, clock=place.clock, rng=place.rng)
    before = content(place, "/one/meta.properties")
    assert not format_if_empty(place.disk, place.settings, clock=place.clock, rng=place.rng)
    assert content(place, "/one/meta.properties") == before
    with place.node() as log:
        assert log.image.metadata_version == 30


def test_the_first_voters_are_named(place: Place) -> None:
    mine, other = "MkU3OEVBNTcwNTJENDM2Qg", "J8qXRwI-Qyi2G0guFTiuYw"
    told = format_directories(
        place.disk,
        place.settings,
        CLUSTER_ID,
        clock=place.clock,
        rng=place.rng,
        initial_controllers=f"2@[::1]:9094:{other}, 1@here:9093:{mine}",
    )
    assert told[0] == "Formatting dynamic metadata voter directory /one with metadata.version 4.3-IV0."
    assert (read_properties(place.disk, "/one/meta.properties") or {})["directory.id"] == mine
    written = decode_checkpoint(
        content(place, "/one/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
    ).membership
    assert written.kraft_version == 1
    assert [(uuid_text(node.voter.directory_id), node.voter.node_id, *node.endpoints) for node in written.voters] == [
        (mine, 1, ("CONTROLLER", "here", 9093)),
        (other, 2, ("CONTROLLER", "::1", 9094)),
    ]


def test_a_node_that_is_no_first_voter_has_a_directory_of_its_own(place: Place) -> None:
    voters = "7@there:9093:J8qXRwI-Qyi2G0guFTiuYw"
    told = format_directories(
        place.disk, place.settings, CLUSTER_ID, clock=place.clock, rng=place.rng, initial_controllers=voters
    )
    assert told[0] == "Formatting dynamic metadata directory /one with metadata.version 4.3-IV0."
    assert (read_properties(place.disk, "/one/meta.properties") or {})["directory.id"] != "J8qXRwI-Qyi2G0guFTiuYw"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "No voters given"),
        ("1", "No @ found"),
        ("@h:1:x", "Invalid @ at beginning"),
        ("x@h:1:x", "Failed to parse node id"),
        ("-1@h:1:x", "Invalid negative node id -1"),
        ("1@", "No hostname found"),
        ("1@h", "No colon following hostname"),
        ("1@[h:1:x", "no right bracket"),
        ("1@[h]1:x", "Port section must start with a colon"),
        ("1@h:1", "No colon following port"),
        ("1@h:x:y", "Failed to parse port"),
        ("1@h:65536:y", "Invalid port 65536"),
        ("1@h:1:y", "Failed to parse directory ID"),
        ("1@h:1:J8qXRwI-Qyi2G0guFTiuYw,1@g:1:J8qXRwI-Qyi2G0guFTiuYw", "specified more than once"),
    ],
)
def test_voters_that_do_not_read_are_refused(text: str, why: str) -> None:
    with pytest.raises(OttlaError, match=re.escape(why)):
        initial_voters(text, "CONTROLLER")


def test_the_first_users_are_known_when_the_node_starts(place: Place) -> None:
    salted = b64encode(hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 8192)).decode()
    given = [
        'SCRAM-SHA-256=[name="alice",password=alice-secret,iterations=4096]',
        f"SCRAM-SHA-512=[name=bob,iterations=8192,salt={b64encode(b'salt').decode()},saltedpassword={salted}]",
    ]
    format_directories(
        place.disk, place.settings, CLUSTER_ID, clock=place.clock, rng=place.rng, standalone=True, scram=given
    )
    with place.node() as log:
        credentials = log.image.scram
        assert sorted(credentials) == [("alice", 1), ("bob", 2)]
        assert len(credentials["alice", 1].salt) == 32
        client_key = hmac.digest(hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 8192), b"Client Key", "sha512")
        assert credentials["bob", 2].stored_key == hashlib.sha512(client_key).digest()


def test_users_need_a_release_that_has_them() -> None:
    place = Place(SimDisk(Random(1)), controller_quorum_voters="1@127.0.0.1:9093")
    with pytest.raises(OttlaError, match=r"^SCRAM is only supported in metadata\.version 3\.5-IV2 or later\.$"):
        format_directories(
            place.disk,
            place.settings,
            CLUSTER_ID,
            clock=place.clock,
            rng=place.rng,
            release_version="3.5-IV1",
            scram=["SCRAM-SHA-256=[name=alice,password=secret]"],
        )
    assert not place.disk.exists("/data")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "Failed to find equals sign in SCRAM argument 'x'"),
        ("MD5=[name=a,password=b]", "The add-scram mechanism MD5 is not supported."),
        ("SCRAM-SHA-256=name=a]", "to start with ["),
        ("SCRAM-SHA-256=[name=a", "to end with ]"),
        ("SCRAM-SHA-256=[password=a]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "Failed to parse iterations count: x"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=1]", "must be >= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=b,iterations=99999]", "must be <= 16384 for add-scram using SCRAM_SHA_512"),
        ("SCRAM-SHA-256=[name=a,password=b,salt=*]", "Failed to decode given salt: *"),
        ("SCRAM-SHA-256=[name=a,password=b,more=c]", "Unknown SCRAM configurations: more"),
        ("SCRAM-SHA-256=[name]", "No equals sign found in SCRAM component: name"),
    ],
)
def test_credentials_that_do_not_read_are_refused(text: str, why: str) -> None:
    with pytest.raises(OttlaError, match=re.escape(why)):
        scram_records([text], Random(1))
