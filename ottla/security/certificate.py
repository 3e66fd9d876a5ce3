r"""A certificate's subject and alternative names from its DER, formatted as Java does (X500Principal, RFC 2253).

Rules:
- CN, C, L, ST, O, OU, STREET, DC and UID have keywords; other types are written as their OID and the value's DER as
  #hex.
- The last part comes first; the parts of one set are joined by "+" in the certificate's order.
- `, = + < > # ; " \\` are escaped, and so are spaces at both ends.
"""

from __future__ import annotations

from ottla.kernel.named import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = frozenset(',=+<>#;"\\')
#: DER tags of text -> its encoding. Java reads the octets of all but BMP and Universal strings as UTF-8.
_TEXTS = {12: "utf-8", 19: "utf-8", 20: "latin-1", 22: "utf-8", 27: "utf-8", 28: "utf-32-be", 30: "utf-16-be"}
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")
_EXTENSIONS_TAG = 0xA3
_VERSION_TAG = 0xA0


class Identity(NamedTuple):
    """The owner of a certificate."""

    #: `CN=ann,OU=orders,O=example`
    name: str
    #: The subject's DER, for comparisons.
    subject: bytes
    #: (kind, value) of each alternative name, unparsed.
    alternative_names: frozenset[tuple[int, bytes]]


def identity_of(certificate: bytes) -> Identity:
    """The owner of a certificate in DER. ValueError if it cannot be read."""
    outer = _Value(certificate, 0)
    body = _Value(outer.content, 0)
    parts = list(_parts(body.content))
    at = 1 if parts and parts[0].tag == _VERSION_TAG else 0
    # serial number, signature, issuer, validity, subject
    if len(parts) < at + 5:
        raise ValueError("the certificate is cut off")
    subject = parts[at + 4]
    names: frozenset[tuple[int, bytes]] = frozenset()
    for part in parts[at + 5 :]:
        if part.tag == _EXTENSIONS_TAG:
            names = _alternative_names(part.content)
    return Identity(rfc2253(subject.content), subject.content, names)


def rfc2253(name: bytes) -> str:
    """The text of a distinguished name, from its DER content."""
    sets = ["+".join(map(_pair, _parts(each.content))) for each in _parts(name)]
    return ",".join(reversed(sets))


def _pair(pair: _Value) -> str:
    kind, value = _parts(pair.content)
    oid = _oid(kind.content)
    keyword = _KEYWORDS.get(oid)
    encoding = _TEXTS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding, 'replace'))}"


def _escaped(text: str) -> str:
    """A part's value, with special characters escaped."""
    lead = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    found = []
    for at, each in enumerate(text):
        if each in _ESCAPED or at < lead or at >= end:
            found.append("\\" + each)
        else:
            found.append("\\00" if each == "\0" else each)
    return "".join(found)


def _oid(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("the certificate has an object identifier without a number")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _alternative_names(extensions: bytes) -> frozenset[tuple[int, bytes]]:
    for extension in _parts(_Value(extensions, 0).content):
        fields = list(_parts(extension.content))
        if fields and fields[0].content == _ALTERNATIVE_NAMES:
            names = _Value(fields[-1].content, 0)
            return frozenset((each.tag, each.content) for each in _parts(names.content))
    return frozenset()


class _Value:
    """A DER value in `data` at `start`."""

    __slots__ = ("content", "end", "tag", "whole")

    def __init__(self, data: bytes, start: int) -> None:
        if start + 2 > len(data):
            raise ValueError("the certificate is cut off")
        self.tag, size, at = data[start], data[start + 1], start + 2
        if size & 0x80:
            at += size & 0x7F
            size = int.from_bytes(data[start + 2 : at], "big")
        self.end = at + size
        if self.end > len(data):
            raise ValueError("the certificate is cut off")
        self.content = data[at : self.end]
        self.whole = data[start : self.end]


def _parts(data: bytes) -> list[_Value]:
    found, at = [], 0
    while at < len(data):
        found.append(_Value(data, at))
        at = found[-1].end
    return found
