"""Topic expressions (KIP-848) as Apache's coordinator reads them: RE2J and we take and refuse the same texts."""

import subprocess

import pytest

from ottla.kernel.re2.pattern import Expression, InvalidExpression
from tests.interop import toolchain
from tests.interop.oracle.expression import NAMES, expressions

pytestmark = pytest.mark.interop

_COUNT = 3000
_TIMEOUT_S = 120


def ours(text: str) -> str:
    try:
        expression = Expression(text)
    except InvalidExpression:
        return "refused"
    return "".join("01"[expression.matches(name)] for name in NAMES)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_expression_is_taken_and_matches_as_in_re2j(seed: int) -> None:
    texts = expressions(seed, _COUNT)
    done = subprocess.run(
        [*toolchain.java_peer("Expressions"), *NAMES],
        input="".join(text.encode().hex() + "\n" for text in texts),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(texts)
    taken = sum(each != "refused" for each in theirs)
    assert taken > _COUNT // 5, "the texts are not worth comparing"
    wrong = {text: (left, ours(text)) for text, left in zip(texts, theirs, strict=True) if left != ours(text)}
    assert not wrong
