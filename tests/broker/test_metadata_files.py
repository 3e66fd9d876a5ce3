"""The small files of the metadata log on a disk that loses what was not synced."""

import random

import pytest

from ottla.broker.metadata.file import MetadataFiles
from ottla.log.setting import LogSettings
from ottla.raft.role import Election
from ottla.sim.disk import Crashed, SimDisk


@pytest.mark.parametrize("seed", range(10))
def test_a_vote_that_a_killed_process_saved_is_durable_before_the_next_one_answers_with_it(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/d")
    disk.sync_directory("/")
    files = MetadataFiles(disk, "/d")
    log = files.open_log(LogSettings(), 0, 0)
    files.save_election(Election(epoch=4), 1, ())
    saved, effects = Election(epoch=5), 0
    while files.election() != saved:
        effects += 1
        disk.crash_at = disk.effects + effects
        with pytest.raises(Crashed):
            files.save_election(saved, 1, ())
    log.discard()
    disk.kill()
    # The next process does not save what it finds saved.
    files.open_log(LogSettings(), 0, 0).discard()
    assert files.election() == saved
    disk.crash()
    assert files.election() == saved
