"""A certificate's owner, and users' names from it."""

import ssl
from pathlib import Path

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.certificate import identity_of, rfc2253
from ottla.security.principal_mapping import PrincipalMapping
from tests.client import certificate


def made(directory: Path, subject: str, *more: str) -> bytes:
    """A certificate of this subject, as DER."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem")
    form = ("-out", "made.pem", "-days", "3", "-utf8", "-subj", subject)
    certificate.run(directory, "openssl", "req", "-x509", *key, *form, *more)
    return ssl.PEM_cert_to_DER_cert((directory / "made.pem").read_text())


#: Subject for openssl -> what java.security's X500Principal.getName() says (tests/interop asks Java itself).
SUBJECTS = {
    "/C=CH/ST=Zurich/L=Zurich/O=Example/OU=Orders/CN=ann": "CN=ann,OU=Orders,O=Example,L=Zurich,ST=Zurich,C=CH",
    "/CN=ann/emailAddress=ann@example.org": ("1.2.840.113549.1.9.1=#160f616e6e406578616d706c652e6f7267,CN=ann"),
    "/DC=org/DC=example/UID=ann/street=A 1": "STREET=A 1,UID=ann,DC=example,DC=org",
    '/CN=a,b=c\\+<d>;"e"#\\\\f': 'CN=a\\,b\\=c\\+\\<d\\>\\;\\"e\\"\\#\\\\f',
    "/CN= edge  ": "CN=\\ edge\\ \\ ",
    "/O=Bücher/CN=Zoë": "CN=Zoë,O=Bücher",
    "/serialNumber=42/CN=x": "CN=x,2.5.4.5=#13023432",
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_is_written_as_java_writes_it(tmp_path: Path, subject: str) -> None:
    assert identity_of(made(tmp_path, subject)).name == SUBJECTS[subject]


def name_of(oid: bytes, value: bytes, tag: int = 12) -> bytes:
    """The DER of a name with one part."""

    def der(kind: int, content: bytes) -> bytes:
        return bytes([kind, len(content)]) + content

    return der(0x31, der(0x30, der(6, oid) + der(tag, value)))


_CN = b"\x55\x04\x03"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (name_of(_CN, b"a\0b"), "CN=a\\00b"),
        (name_of(_CN, b"\r a \r"), "CN=\\\r\\ a\\ \\\r"),
        (name_of(_CN, b"a\rb"), "CN=a\rb"),
        (name_of(_CN, b"  "), "CN=\\ \\ "),
        (name_of(_CN, "Zoë".encode("latin-1"), 20), "CN=Zoë"),
        (name_of(_CN, "Zoë".encode("utf-16-be"), 30), "CN=Zoë"),
        (name_of(_CN, b"\1", 1), "CN=#010101"),
        # Identifiers of all three roots; the second number of the last may be 40 and more.
        (name_of(b"\x27", b"a"), "0.39=#0c0161"),
        (name_of(b"\x28", b"a"), "1.0=#0c0161"),
        (name_of(b"\x4f", b"a"), "1.39=#0c0161"),
        (name_of(b"\x50", b"a"), "2.0=#0c0161"),
        (name_of(b"\x88\x37\x03", b"a"), "2.999.3=#0c0161"),
    ],
)
def test_a_part_is_written_by_its_kind_and_its_letters(name: bytes, text: str) -> None:
    assert rfc2253(name) == text


def test_parts_of_one_set_are_joined(tmp_path: Path) -> None:
    found = identity_of(made(tmp_path, "/O=x/CN=a+UID=b", "-multivalue-rdn")).name
    assert found in ("CN=a+UID=b,O=x", "UID=b+CN=a,O=x")


def test_alternative_names_are_found(tmp_path: Path) -> None:
    der = made(tmp_path, "/CN=a", "-addext", "subjectAltName=DNS:a.example,IP:127.0.0.1")
    assert identity_of(der).alternative_names == {(0x82, b"a.example"), (0x87, bytes([127, 0, 0, 1]))}
    assert identity_of(made(tmp_path, "/CN=a")).alternative_names == frozenset()


def test_what_is_cut_is_refused(tmp_path: Path) -> None:
    der = made(tmp_path, "/CN=a", "-addext", "subjectAltName=DNS:a.example")
    for end in range(len(der)):
        with pytest.raises(ValueError):
            identity_of(der[:end])


@pytest.mark.parametrize(
    "der",
    [
        b"\x30\x02\x30\x00",
        # An attribute whose object identifier is empty, in the subject.
        b"\x30\x19\x30\x17" + b"\x02\x01\x01" + 3 * b"\x30\x00" + b"\x30\x0c\x31\x0a\x30\x08\x06\x00\x0c\x04Duke",
    ],
)
def test_what_is_missing_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError):
        identity_of(der)


def test_an_empty_extension_names_nobody() -> None:
    body = b"\x02\x01\x01" + 4 * b"\x30\x00" + b"\xa3\x04\x30\x02\x30\x00"
    whole = b"\x30" + bytes([len(body)]) + body
    assert identity_of(b"\x30" + bytes([len(whole)]) + whole).alternative_names == frozenset()


#: Of Apache's SslPrincipalMapperTest: rules, name -> user.
MAPPED = [
    ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
    (
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
        "duke@sme",
    ),
    ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
    ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT", "CN=Duke,OU=x", "duke"),
    ("RULE:^CN=(.*)$/$1@$4/", "CN=a", "a@$4"),
    ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
    ("RULE:^CN=(?<who>.*)$/${who}/", "CN=a", "a"),
    # Java's Matcher reads digits as long as they name a group, a zero in front included.
    ("RULE:^CN=(.*)$/$01-$00-$012/", "CN=a", "a-CN=a-a2"),
    ("RULE:^CN=.*$/$01/", "CN=a", "CN=a1"),
    ("RULE:.*/x/,DEFAULT", "CN=a", "xx"),
    ("RULE:^CN=(.*),O=a\\/b$/$1/", "CN=x,O=a/b", "x"),
    ("RULE:^O=(.*)$/$1/,RULE:^CN=(.*)$/$1/U", "CN=x", "X"),
]


@pytest.mark.parametrize(("rules", "name", "user"), MAPPED)
def test_rules_name_users(rules: str, name: str, user: str) -> None:
    assert PrincipalMapping(rules).user(name) == user


def test_a_name_that_no_rule_matches_has_no_user() -> None:
    assert PrincipalMapping("RULE:^CN=(.*)$/$1/").user("O=x") is None


#: A rule, a name that takes Python's engine a lifetime, its user.
ENDLESS = [
    ("RULE:^CN=(a+)+,OU=x$/$1/,DEFAULT", f"CN={'a' * 60}", f"CN={'a' * 60}"),
    ("RULE:^CN=(a|aa)+$/$1/,DEFAULT", f"CN={'a' * 100}\\,", f"CN={'a' * 100}\\,"),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1/,DEFAULT", "CN=a" + ",OU=,O=,L=,ST=" * 40, None),
]


@pytest.mark.parametrize(("rules", "name", "user"), ENDLESS)
def test_a_name_that_was_made_for_a_rule_takes_bounded_time(rules: str, name: str, user: str | None) -> None:
    assert PrincipalMapping(rules).user(name) == (name if user is None else user)


def test_letters_are_those_of_java() -> None:
    rules = PrincipalMapping("RULE:(?i)^CN=kafka$/broker/,RULE:^CN=(\\w+)$/$1/,DEFAULT")
    assert [rules.user(name) for name in ("CN=KAFKA", "CN=\N{KELVIN SIGN}afka", "CN=é")] == [
        "broker",
        "CN=\N{KELVIN SIGN}afka",
        "CN=é",
    ]


def test_a_rule_outside_of_re2_is_taken_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rules = PrincipalMapping("RULE:^(?!CN=root)CN=(.*)$/$1/,RULE:^CN=(.*)$/not-$1/")
    assert (rules.user("CN=ann"), rules.user("CN=root")) == ("ann", "not-root")
    assert "(?!CN=root)" in caplog.text
    assert "can hold this node up" in caplog.text


@pytest.mark.parametrize("rules", ["default", "DEFAULT/L", "RULE:CN=(.*?),OU=ServiceUsers.*/$1", "RULE:^CN=(.*?/$1/"])
def test_a_rule_that_cannot_be_read_is_named(rules: str) -> None:
    with pytest.raises(OttlaError, match=r"^ssl\.principal\.mapping\.rules: '.*' cannot be read"):
        PrincipalMapping(rules)
