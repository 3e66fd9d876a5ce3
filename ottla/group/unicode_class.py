r"""What RE2 calls `\p{Name}`: Unicode's general categories and scripts, as far as they are in ASCII.

Topic names are ASCII, so most classes are empty: an expression may name them, and nothing matches.
"""

from collections.abc import Mapping

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
