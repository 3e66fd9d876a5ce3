"""Format as `kafka-storage format` does it."""

from pathlib import Path
from random import Random

import pytest

from ottla.broker.format import format_directories, format_if_empty
from ottla.kernel.error import OttlaError
from ottla.log.checkpoint import read_properties
from ottla.raft.checkpoint import decode_checkpoint
from ottla.sim.disk import SimDisk
from ottla.wire.record.metadata import parse
from tests.cluster.place import CLUSTER_ID, Place

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
        ({"standalone": False}, "say --standalone to make a quorum of this node"),
        ({"release_version": "9.9"}, r"Unknown metadata\.version '9\.9'"),
        ({"features": {"metadata.version": 99}}, r"No metadata\.version with feature level 99"),
        ({"features": {"metadata.version": 29}, "release_version": "4.2"}, "use --release-version instead"),
        ({"features": {"kraft.version": 0}}, r"kraft\.version=0 does not go without controller\.quorum\.voters"),
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
    with pytest.raises(OttlaError, match="do not go together"):
        place.format()


def test_an_empty_directory_is_formatted_once(place: Place) -> None:
    assert format_if_empty(place.disk, place.settings, clock=place.clock, rng=place.rng)
    before = content(place, "/one/meta.properties")
    assert not format_if_empty(place.disk, place.settings, clock=place.clock, rng=place.rng)
    assert content(place, "/one/meta.properties") == before
    with place.node() as log:
        assert log.image.metadata_version == 30
