"""Tests of the metadata: the image, the commands, the log on a disk. Apache referees it in tests/interop."""
