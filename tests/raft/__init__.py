"""Tests of the quorum as a pure machine, and of its files."""
