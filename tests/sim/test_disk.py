"""What only the simulated disk does: forget, tear, refuse."""

import errno
import random

import pytest

from ottla.sim.disk import SECTOR_BYTES, Crashed, SimDisk


def _disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def _content(disk: SimDisk, path: str) -> bytes | None:
    return disk.open(path).read(1 << 20, 0) if disk.exists(path) else None


def test_what_was_synced_survives_every_crash() -> None:
    for seed in range(50):
        disk = _disk(seed)
        file = disk.open("/d/a", create=True)
        file.write(b"kept", 0)
        file.sync()
        disk.sync_directory("/d")
        file.write(b"more", 4)
        disk.crash()
        content = _content(disk, "/d/a")
        assert content is not None
        assert content[:4] == b"kept"


def test_what_was_not_synced_is_kept_lost_or_torn_by_the_seed() -> None:
    seen = set()
    for seed in range(60):
        disk = _disk(seed)
        file = disk.open("/d/a", create=True)
        file.sync()
        disk.sync_directory("/d")
        file.write(b"x" * (3 * SECTOR_BYTES), 0)
        disk.crash()
        content = _content(disk, "/d/a")
        assert content is not None
        seen.add(len(content))
        assert content == b"x" * len(content)
    assert seen == {0, SECTOR_BYTES, 2 * SECTOR_BYTES, 3 * SECTOR_BYTES}


def test_a_later_write_may_survive_an_earlier_one() -> None:
    holes = 0
    for seed in range(60):
        disk = _disk(seed)
        file = disk.open("/d/a", create=True)
        file.sync()
        disk.sync_directory("/d")
        file.write(b"a" * SECTOR_BYTES, 0)
        file.write(b"b" * SECTOR_BYTES, SECTOR_BYTES)
        disk.crash()
        holes += _content(disk, "/d/a") == bytes(SECTOR_BYTES) + b"b" * SECTOR_BYTES
    assert holes


def test_a_name_is_durable_only_after_its_directory_was_synced() -> None:
    outcomes = set()
    for seed in range(40):
        disk = _disk(seed)
        file = disk.open("/d/new", create=True)
        file.write(b"1", 0)
        file.sync()
        disk.rename("/d/new", "/d/name")
        disk.crash()
        outcomes.add(tuple(disk.list("/d")))
    assert outcomes == {(), ("new",), ("name",)}


def test_a_rename_over_a_file_leaves_the_old_or_the_new_one() -> None:
    outcomes = set()
    for seed in range(40):
        disk = _disk(seed)
        for name, data in (("old", b"old"), ("new", b"new")):
            file = disk.open(f"/d/{name}", create=True)
            file.write(data, 0)
            file.sync()
        disk.sync_directory("/d")
        disk.rename("/d/new", "/d/old")
        disk.crash()
        outcomes.add(_content(disk, "/d/old"))
    assert outcomes == {b"old", b"new"}


def test_the_same_seed_is_the_same_history() -> None:
    def history(seed: int) -> list[bytes | None]:
        disk = _disk(seed)
        for number in range(20):
            file = disk.open(f"/d/{number}", create=True)
            file.write(bytes([number]) * 2000, 0)
        disk.crash()
        return [_content(disk, f"/d/{number}") for number in range(20)]

    assert history(7) == history(7)
    assert history(7) != history(8)


def test_a_sync_that_fails_loses_writes_by_the_seed_even_if_the_next_one_succeeds() -> None:
    seen = set()
    for seed in range(40):
        disk = _disk(seed)
        file = disk.open("/d/a", create=True)
        file.sync()
        disk.sync_directory("/d")
        for number in range(2):
            file.write(b"lost?" * 200, number * 1000)
        disk.syncs_to_fail = 1
        with pytest.raises(OSError) as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
        file.write(b"later", 2000)
        file.sync()
        assert file.read(2000, 0) == b"lost?" * 400, "the page cache has it"
        disk.crash()
        content = _content(disk, "/d/a")
        assert content is not None and content[2000:] == b"later", "what a sync wrote is there"
        seen.add(tuple(content[start : start + 1000].count(b"lost?") for start in (0, 1000)))
    assert {(0, 0), (0, 200), (200, 0), (200, 200)} < seen, "each is kept, lost or torn"


def test_a_full_disk_refuses_growth_and_allows_the_rest() -> None:
    disk = _disk(1)
    file = disk.open("/d/a", create=True)
    file.write(b"x" * 100, 0)
    disk.fill(150)
    with pytest.raises(OSError) as caught:
        file.write(b"y" * 100, 100)
    assert caught.value.errno == errno.ENOSPC
    file.write(b"z" * 50, 0)
    assert disk.free_bytes("/d") == (150, 0)
    disk.fill(None)
    file.write(b"y" * 100, 100)


def test_the_power_goes_before_the_effect_that_was_chosen() -> None:
    disk = _disk(1)
    file = disk.open("/d/a", create=True)
    disk.crash_at = disk.effects + 1
    file.write(b"1", 0)
    with pytest.raises(Crashed):
        file.write(b"2", 0)
    assert file.read(1, 0) == b"1"
