"""The orders of Java's collections: HashSet by its hashes, TreeSet by the red-black tree that it is."""

from math import log2
from random import Random

import pytest

from ottla.flow.java_order import TreeSet, java_hash, java_set


def depths(names: list[int]) -> dict[int, int]:
    """How deep each number lies, from the comparisons that meet it when it is added again."""
    asked: list[str] = []

    def rank(name: str) -> int:
        asked.append(name)
        return int(name)

    tree = TreeSet(rank)
    for name in names:
        tree.add(str(name))
    assert [int(name) for name in tree] == sorted(names)
    found = {}
    for name in names:
        asked.clear()
        tree.add(str(name))
        found[name] = len(asked) // 2
    assert len(list(tree)) == len(names)
    return found


@pytest.mark.parametrize(
    ("names", "levels"),
    [
        ([1], [[1]]),
        ([1, 2, 3], [[2], [1, 3]]),
        ([3, 2, 1], [[2], [1, 3]]),
        ([3, 1, 2], [[2], [1, 3]]),
        ([1, 3, 2], [[2], [1, 3]]),
        ([1, 2, 3, 4, 5, 6], [[2], [1, 4], [3, 5], [6]]),
        ([6, 5, 4, 3, 2, 1], [[5], [3, 6], [2, 4], [1]]),
        ([1, 2, 3, 4, 5, 6, 7, 8], [[4], [2, 6], [1, 3, 5, 7], [8]]),
        ([8, 7, 6, 5, 4, 3, 2, 1], [[5], [3, 7], [2, 4, 6, 8], [1]]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [[4], [2, 6], [1, 3, 5, 8], [7, 9], [10]]),
    ],
)
def test_a_tree_set_has_the_shape_of_a_red_black_tree(names: list[int], levels: list[list[int]]) -> None:
    assert depths(names) == {name: depth for depth, level in enumerate(levels) for name in level}


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_set_of_many_is_never_deep(seed: int) -> None:
    names = list(range(400))
    if seed:
        Random(seed).shuffle(names)
    assert max(depths(names).values()) < 2 * log2(len(names) + 1)


def test_a_string_has_the_hash_that_java_gives_it() -> None:
    known = {"": 0, "a": 97, "ab": 3105, "hello": 99162322, "polygenelubricants": -2147483648, "\U0001f600": 1772899}
    assert {text: (java_hash(text) ^ 1 << 31) - (1 << 31) for text in known} == known


def test_a_hash_set_is_iterated_by_its_buckets() -> None:
    assert java_set(["in", "other"]) == ["other", "in"]
    assert java_set("dcba") == ["a", "b", "c", "d"]
    assert java_set(["b", "a", "b"]) == ["a", "b"]
    # "Aa" and "BB" share a hash: they stay in the order in which they came.
    assert java_set(["BB", "Aa"]) == ["BB", "Aa"] and java_set(["Aa", "BB"]) == ["Aa", "BB"]
    # "p" (112) and "`" (96) share a bucket of 16; more than 12 names lie in 32, where they do not.
    assert java_set(["p", "`", *"bcdefghijk"])[:2] == ["p", "`"]
    assert java_set(["p", "`", *"bcdefghijkl"]) == ["`", *"bcdefghijkl", "p"]
