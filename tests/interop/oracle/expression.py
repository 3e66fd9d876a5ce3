"""Expressions over topic names drawn by a seed: what RE2 knows, what it refuses, and what only looks like it."""

from random import Random

NAMES = (
    *("a", "b", "ab", "aB", "AB", "a.b", "a-b", "a_b", "0", "01", "a0", "orders-eu-07", "orders-us-7", "__x", "..a"),
    *("z" * 30, "aaa", "abab", "-", "_", "k", "K"),
)
_PLAIN = ("a", "b", "A", "0", "9", ".", r"\.", r"\-", "-", "_", r"\_", "ab")
_ATOMS = (
    *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\pL", r"\p{L}", r"\p{Lu}", r"\P{Lu}", r"\PN", r"\p{Greek}"),
    *(r"\p{Common}", r"\p{^L}", r"\P{^L}", r"\p{", r"\pX", r"\p{Nope}", r"\p{Any}", "[a-c]", "[^a]", "[a", "[]a]"),
    *("[^]a]", "[a-]", "[-a]", "[b-a]", r"[a-\d]", r"[\d]", r"[\D]", "[[:alpha:]]", "[[:^alpha:]]", "[[:nope:]]"),
    *("[:alpha:]", "[[:word:]a]", r"[\pL]", r"[\]]", "[a&&b]", "[.]", "[a-c-e]", r"[\Qa]", r"\Qa.b\E", r"\Qa"),
    *(r"\E", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G", "^", "$", r"\C", r"\X", r"\R", r"\h", r"\1", r"\0", r"\00"),
    *(r"\07", r"\123", r"\8", r"\x41", r"\x4", r"\x{41}", r"\x{}", r"\x{110000}", r"\u0041", r"\a", r"\f", r"\t"),
    *(r"\n", r"\r", r"\v", r"\e", r"\c", r"\k", r"\y", "\\", "é", "\\é", "\x00", "\n", " ", "#", r"\/", "/", r"\ "),
    *("{", "}", "]", "a{", "{1}", "a{,2}", "a{2", "é{2}"),
)
_REPEATS = (
    *("*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,}", "{1,2}", "{2,1}", "{9}", "{1001}", "{1,1001}", "{,2}"),
    *("{2}?", "**", "+*", "?+", "*+", "++", "{2}{3}", "{ 2}", "{01}", "{2,3}*"),
)
_GROUPS = (
    *(("(", ")"), ("(?:", ")"), ("(?i:", ")"), ("(?s:", ")"), ("(?m:", ")"), ("(?U:", ")"), ("(?x:", ")")),
    *(("(?-i:", ")"), ("(?i-s:", ")"), ("(?is)(", ")"), ("(?i)", ""), ("(?-", ")"), ("(?-:", ")"), ("(?i-:", ")")),
    *(("(?i--s:", ")"), ("(?P<n>", ")"), ("(?<n>", ")"), ("(?P<n-1>", ")"), ("(?P<>", ")"), ("(?P=n)", "")),
    *(("(?=", ")"), ("(?!", ")"), ("(?<=", ")"), ("(?>", ")"), ("(?#", ")"), ("(?", ")"), ("((", ")"), ("(", "")),
    *(("", ")"), ("(?i:", "|b)"), ("(|", ")"), ("(*", ")"), ("(?u:", ")"), ("(?d)", ""), ("(?P<é>", ")"), ("(?:)", "")),
)


def expressions(seed: int, count: int) -> list[str]:
    """So many different texts."""
    rng = Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[_drawn(rng, 0)] = None
    return list(found)


def _drawn(rng: Random, depth: int) -> str:
    parts = []
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        if depth < 3 and rng.random() < 0.25:
            opening, closing = rng.choice(_GROUPS)
            part = opening + _drawn(rng, depth + 1) + closing
        else:
            part = rng.choice(_PLAIN if rng.random() < 0.6 else _ATOMS)
        parts.append(part + rng.choice(_REPEATS) if rng.random() < 0.25 else part)
    text = "".join(parts)
    return f"{text}|{_drawn(rng, depth + 1)}" if rng.random() < 0.15 else text
