"""Java's .properties files."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ottla.kernel.error import OttlaError
from ottla.settings.properties import read, write


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\t=\t5\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# no\n  ! neither\n\n   a=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        (
            "listeners=PLAINTEXT://:9092,\\\n    CONTROLLER://:9093\nb=2",
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "b": "2"},
        ),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("key\\ with\\=marks\\:=v", {"key with=marks:": "v"}),
        ("a=\\t\\n\\u00e9\\q", {"a": "\t\n\u00e9q"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=first\na=second", {"a": "second"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=trailing blanks  \n", {"a": "trailing blanks  "}),
        ("a==b", {"a": "=b"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=end\\", {"a": "end"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert read(text) == found


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(OttlaError, match=r"^line 2: "):
        read("a=1\nlog.dirs=C:\\users\\kafka")


_WORDS = some.text(some.characters(exclude_categories=["Cs"]))


@given(some.dictionaries(_WORDS.filter(bool), _WORDS))
def test_what_is_written_is_read_back(settings: dict[str, str]) -> None:
    assert read(write(settings, "two\nlines of comment")) == settings
