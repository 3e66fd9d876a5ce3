"""`python -m ottla.cli` is `ottla`."""

from ottla.cli import main

main()
