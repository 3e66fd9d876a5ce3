r"""RE2's `\p{Name}`: Unicode general categories and scripts.

`CLASSES` has the ASCII characters of each class: topic names are ASCII, so most classes are empty. `others_of` handles
other characters: Python knows their categories, but their scripts only by the prefix of their names.
"""

from collections.abc import Mapping
from unicodedata import category, name

_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ASCII = frozenset(map(chr, range(128)))

_CATEGORIES = {
    "Lu": _UPPER,
    "Ll": _LOWER,
    "Nd": frozenset("0123456789"),
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
    "Ps": frozenset("([{"),
    "Pe": frozenset(")]}"),
    "Po": frozenset("!\"#%&'*,./:;?@\\"),
    "Sc": frozenset("$"),
    "Sk": frozenset("^`"),
    "Sm": frozenset("+<=>|~"),
    "Zs": frozenset(" "),
    "Cc": frozenset(map(chr, [*range(32), 127])),
    **dict.fromkeys(
        ["Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nl", "No", "Pi", "Pf", "So", "Zl", "Zp", "Cf", "Cs", "Co"], frozenset()
    ),
}
_EMPTY_SCRIPTS = """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid
    Canadian_Aboriginal Carian Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari
    Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew
    Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada
    Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek
    Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya
    Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac
    Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi
"""

#: The characters of each class by its name.
CLASSES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_EMPTY_SCRIPTS.split(), frozenset()),
    **_CATEGORIES,
    **{
        letter: frozenset().union(*(each for name, each in _CATEGORIES.items() if name[0] == letter))
        for letter in "LMNPSZC"
    },
    "Any": _ASCII,
    "Latin": _LOWER | _UPPER,
    "Common": _ASCII - _LOWER - _UPPER,
}


def others_of(class_name: str, characters: frozenset[str]) -> frozenset[str]:
    """Return those of the given non-ASCII characters that belong to the class."""
    if class_name == "Any" or not characters:
        return characters
    if class_name in _CATEGORIES or len(class_name) == 1:
        return frozenset(character for character in characters if category(character).startswith(class_name))
    if class_name == "Common":
        return frozenset(character for character in characters if category(character)[0] not in "LM")
    begins = {"Han": "CJK "}.get(class_name, f"{class_name.upper().replace('_', ' ')} ")
    return frozenset(character for character in characters if name(character, "").startswith(begins))
