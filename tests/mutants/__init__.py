"""Planted bugs, each with the tests that must catch it.

A mutant is a text of the product and the wrong text that takes its place; `*.toml` beside this file hold them, one file
for each package of `ottla`. `python -m tests.mutants` (`make mutants`) plants one at a time in a copy of the tree, runs
its tests with a time limit and says whether they failed. A mutant is found by its text, not by a line number, and in
whichever file of the product that text stands now.
"""
