"""Planted bugs, each with the tests that must catch it.

A mutant is a text of the product and the wrong text that takes its place; `*.toml` beside this file hold them, one file
for each package of `ottla`. `python -m tests.mutants` (`make mutants`) plants one at a time in a copy of the tree, runs
its tests with a time limit and says whether they failed. A mutant is found by its text, not by a line number, and in
whichever file of the product that text stands now.

`python -m tests.mutants.hunt` plants small bugs by chance, each line of code with the same weight. The last measure is
seed 20261122, 66 of them: 38 caught (two by hand), 27 not caught, one unclear. Each was given at most 60 tests that run
its line, the quickest; the map had no tests of `tests/world`, `tests/sim`, `tests/spark`, `tests/crash`: some of the 27
are seen by those. Survivors were not sorted into equivalent ones and others.
"""
