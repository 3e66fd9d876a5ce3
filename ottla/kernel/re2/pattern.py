r"""Regular expressions over names: RE2's syntax, matched in bounded time (KIP-848, KIP-1152, KIP-714).

Rules:
- An expression must match a whole name.
- The syntax is RE2's, as in Apache Kafka's brokers: no back-references, no lookaround, no possessive quantifiers.
  Python's `re` has these, but can take exponential time on a name that a client chose.
- Topic names are ASCII. For other names the caller passes their non-ASCII characters, which classes then include.
- An expression that takes too much work (`WORK_MAX`) is rejected when the limit is reached (docs/decisions/0340).

    >>> expression = Expression("orders-(eu|us)-[0-9]{2,}")
    >>> expression.matches("orders-eu-07"), expression.matches("orders-eu-7")
    (True, False)
"""

from collections.abc import Generator, Iterable

from ottla.kernel.re2.automaton import STATES_A_STEP, WORD, Automaton, TooLarge, drained
from ottla.kernel.re2.unicode_class import CLASSES, others_of

#: RE2's limit on a counted repetition, {n,m}.
_REPEAT_MAX = 1000
#: The maximum nesting depth of groups. RE2 allows 1000; Python's stack is smaller.
_DEPTH_MAX = 100

_DIGITS = frozenset("0123456789")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ASCII = frozenset(map(chr, range(128)))
_SPACE = frozenset("\t\n\f\r ")
_PERL = {"d": _DIGITS, "w": WORD, "s": _SPACE}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_PUNCTUATION = frozenset(r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""")
_POSIX = {
    "alnum": _DIGITS | _LOWER | _UPPER,
    "alpha": _LOWER | _UPPER,
    "ascii": _ASCII,
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, [*range(32), 127])),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": _LOWER,
    "print": frozenset(map(chr, range(32, 127))),
    "punct": _PUNCTUATION,
    "space": _SPACE | {"\v"},
    "upper": _UPPER,
    "word": WORD,
    "xdigit": _DIGITS | frozenset("abcdefABCDEF"),
}


class InvalidExpression(ValueError):
    """The text is not a valid RE2 expression; the message says why."""


class Expression:
    """A compiled expression. Compiling an invalid one raises InvalidExpression; so does matching with too much work."""

    def __init__(self, text: str, others: Iterable[str] = ()) -> None:
        """`others` are all non-ASCII characters that names may have; names with more are not matched correctly."""
        self.text = text
        self._automaton = Automaton()
        drained(self._compile(others))

    @classmethod
    def in_steps(cls, text: str, others: Iterable[str] = ()) -> Generator[None, None, "Expression"]:
        """Compile the expression in steps of less than a millisecond."""
        expression = cls.__new__(cls)
        expression.text = text
        expression._automaton = Automaton()
        yield from expression._compile(others)
        return expression

    def _compile(self, others: Iterable[str]) -> Generator[None, None, None]:
        automaton = self._automaton
        try:
            automaton.start, automaton.accept = yield from Parser(self.text, automaton, others).parse()
        except TooLarge as error:
            raise InvalidExpression(str(error)) from error

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches."""
        return drained(self.matches_in_steps(name))

    def matches_in_steps(self, name: str) -> Generator[None, None, bool]:
        """`matches` in steps of about a millisecond."""
        try:
            return (yield from self._automaton.matches(name))
        except TooLarge as error:
            raise InvalidExpression(str(error)) from error


#: The flags i, s and m.
_Flags = tuple[bool, bool, bool]
#: The first and the last state of a piece of the automaton.
_Piece = tuple[int, int]


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii() and (text == "0" or text[0] != "0")


class Parser:
    """A recursive descent parser. A counted repetition parses its operand again for each copy.

    With `captures`, the automaton marks the start and end of groups for `ottla.kernel.re2.search`, and case folding
    applies to ASCII letters only, as in Java.
    """

    def __init__(self, text: str, automaton: Automaton, others: Iterable[str], *, captures: bool = False) -> None:
        self.text = text
        self.automaton = automaton
        self.others = frozenset(others) - _ASCII
        self.every = _ASCII | self.others
        self.at = 0
        self.depth = 0
        self.fold_case = self.dot_all = self.by_lines = False
        #: Named groups and their positions: the copies of a repetition parse the same group again.
        self.names: dict[str, int] = {}
        self.captures = captures
        #: Parsing yields when the automaton has so many states.
        self._step_ends = STATES_A_STEP
        #: Position of a group -> its number, and name -> number.
        self.groups: dict[int, int] = {}
        self.numbers: dict[str, int] = {}

    def parse(self) -> Generator[None, None, _Piece]:
        """Build the automaton; yields between steps."""
        piece = yield from self._alternation()
        if self.at < len(self.text):
            raise InvalidExpression("unexpected )")
        return piece

    def _state(self) -> _Flags:
        return self.fold_case, self.dot_all, self.by_lines

    def _restore(self, flags: _Flags) -> None:
        self.fold_case, self.dot_all, self.by_lines = flags

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _eat(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _next(self, why: str) -> str:
        if self.at == len(self.text):
            raise InvalidExpression(why)
        self.at += 1
        return self.text[self.at - 1]

    def _alternation(self) -> Generator[None, None, _Piece]:
        if self.depth == _DEPTH_MAX:
            raise InvalidExpression("expression nests too deeply")
        self.depth += 1
        start, end = self.automaton.state(), self.automaton.state()
        flags = self._state()
        while True:
            first, last = yield from self._sequence()
            self.automaton.connect(start, first)
            self.automaton.connect(last, end)
            if not self._eat("|"):
                self.depth -= 1
                # Flags set inside a group end with it.
                self._restore(flags)
                return start, end

    def _sequence(self) -> Generator[None, None, _Piece]:
        first = last = self.automaton.state()
        while self._peek() not in ("", "|", ")"):
            begin, flags = self.at, self._state()
            piece = yield from self._operand()
            if piece is None:
                continue
            piece = yield from self._repeated(piece, begin, flags)
            self.automaton.connect(last, piece[0])
            last = piece[1]
        return first, last

    # -- repetition

    def _repeated(self, piece: _Piece, begin: int, flags: _Flags) -> Generator[None, None, _Piece]:
        operand_end = self.at
        low_high = self._quantifier()
        if low_high is None:
            return piece
        lazy = self._eat("?")
        after = self.at
        if self._quantifier() is not None:
            raise InvalidExpression("invalid nested repetition operator")
        low, high = low_high
        pieces = [piece]
        for _ in range(1, max(low, high or 0, 1)):
            self.at = begin
            self._restore(flags)
            copy = yield from self._operand()
            assert copy is not None and self.at == operand_end
            pieces.append(copy)
        self.at = after
        return self._chain(pieces, low, high, lazy=lazy)

    def _chain(self, pieces: list[_Piece], low: int, high: int | None, *, lazy: bool) -> _Piece:
        start, end = self.automaton.state(), self.automaton.state()
        ends = [(start, end)] if low == 0 else []
        goes_on: list[tuple[int, int]] = []
        last = start
        for index, (first, finish) in enumerate(pieces if high != 0 else (), 1):
            goes_on.append((last, first))
            if index >= low:
                ends.append((finish, end))
            last = finish
        if high is None:
            first, finish = pieces[-1]
            goes_on.append((finish, first))
        # A search tries the transitions of a state in order.
        for source, target in (*ends, *goes_on) if lazy else (*goes_on, *ends):
            self.automaton.connect(source, target)
        return start, end

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._eat(sign):
                return bounds
        closing = self.text.find("}", self.at)
        if self._peek() != "{" or closing < 0:
            return None
        low, comma, high = self.text[self.at + 1 : closing].partition(",")
        if not _is_count(low) or (high and not _is_count(high)):
            # As in RE2, braces with any other content are literals.
            return None
        self.at = closing + 1
        at_least = int(low)
        at_most = (int(high) if high else None) if comma else at_least
        if at_least > _REPEAT_MAX or (at_most is not None and not at_least <= at_most <= _REPEAT_MAX):
            raise InvalidExpression("invalid repetition size")
        return at_least, at_most

    # -- atoms

    def _operand(self) -> Generator[None, None, _Piece | None]:
        if len(self.automaton) >= self._step_ends:
            self._step_ends = len(self.automaton) + STATES_A_STEP
            yield
        return (yield from self._group()) if self._eat("(") else self._atom()

    def _atom(self) -> _Piece | None:
        character = self._next("expression ends too early")
        match character:
            case "[":
                return self.automaton.taking(self._class())
            case ".":
                return self.automaton.taking(self.every if self.dot_all else self.every - {"\n"})
            case "^" | "$":
                lines = {"^": "(^", "$": ")$"}
                return self._assertion(lines[character] if self.by_lines else character)
            case "{":
                self.at -= 1
                if self._quantifier() is not None:
                    raise InvalidExpression("missing argument to repetition operator: {}")
                self.at += 1
                begin = self.at
                if self._quantifier() is not None:
                    # As in RE2J, a literal brace cannot be repeated.
                    raise InvalidExpression("invalid nested repetition operator")
                self.at = begin
            case "*" | "+" | "?":
                raise InvalidExpression(f"missing argument to repetition operator: {character}")
            case "\\":
                return self._escape()
        return self._literal(character)

    def _assertion(self, condition: str) -> _Piece:
        start, end = self.automaton.state(), self.automaton.state()
        self.automaton.connect(start, end, condition)
        return start, end

    def _literal(self, character: str) -> _Piece:
        return self.automaton.taking(self._cased(frozenset(character)))

    def _cased(self, characters: frozenset[str]) -> frozenset[str]:
        if not self.fold_case:
            return characters
        if self.captures:
            ascii_letters = [character for character in characters if character.isascii()]
            return characters.union(map(str.lower, ascii_letters), map(str.upper, ascii_letters))
        cased = {form for character in characters for form in (character.lower(), character.upper()) if len(form) == 1}
        if self.others:
            # Some letters have a third form: the Greek final sigma, the kelvin and angstrom signs.
            folded = {character.casefold() for character in characters}
            cased.update(character for character in self.others if character.casefold() in folded)
            cased.update(chr(code) for code in range(128) if any(chr(code) == character for character in folded))
        return frozenset(cased)

    def _group(self) -> Generator[None, None, _Piece | None]:
        flags, begin, name, captures = self._state(), self.at, "", True
        if self._eat("?"):
            if self._eat("P<") or self._eat("<"):
                name, closed, _ = self.text[self.at :].partition(">")
                if not closed or not name or not set(name) <= WORD:
                    raise InvalidExpression("invalid named capture")
                if self.names.setdefault(name, self.at) != self.at:
                    raise InvalidExpression(f"duplicate capture group name: {name}")
                self.at += len(name) + 1
            elif self._flags():
                captures = False
            else:
                return None
        number = self.groups.setdefault(begin, len(self.groups) + 1) if captures else 0
        if name:
            self.numbers[name] = number
        piece = yield from self._alternation()
        if not self._eat(")"):
            raise InvalidExpression("missing closing )")
        self._restore(flags)
        return self.automaton.marked(piece, number) if captures and self.captures else piece

    def _flags(self) -> bool:
        """Read flags up to the colon or the end of the group; return True if a group follows."""
        value = flagged = True
        while True:
            flag = self._next("missing closing )")
            if flag in "-:)":
                if not flagged or (flag == "-" and not value):
                    raise InvalidExpression("missing argument to (?-")
                flagged = False
            else:
                flagged = True
            match flag:
                case "i":
                    self.fold_case = value
                case "s":
                    self.dot_all = value
                case "m":
                    self.by_lines = value
                case "U":
                    # Greediness does not affect a whole match.
                    pass
                case "-":
                    value = False
                case ":":
                    return True
                case ")":
                    return False
                case _:
                    raise InvalidExpression(f"invalid or unsupported Perl syntax: (?{flag}")

    def _escape(self) -> _Piece | None:
        if self._eat("Q"):
            # Escape each character by itself, so that a following quantifier applies only to the last.
            start = self.at - 2
            quoted, _, rest = self.text[self.at :].partition("\\E")
            escaped = "".join(
                character if character in WORD or not character.isascii() else f"\\{character}" for character in quoted
            )
            self.text, self.at = self.text[:start] + escaped + rest, start
            return None
        for letter, condition in (("A", "^"), ("z", "$"), ("b", "b"), ("B", "B")):
            if self._eat(letter):
                return self._assertion(condition)
        characters = self._escaped()
        return self.automaton.taking(self._cased(characters) if len(characters) == 1 else characters)

    def _escaped(self) -> frozenset[str]:
        """Return the characters of an escape, inside or outside a class."""
        letter = self._next("trailing backslash at end of expression")
        if letter in _PERL:
            return _PERL[letter]
        if letter in ("D", "W", "S"):
            return self.every - _PERL[letter.lower()]
        if letter in _CONTROL:
            return frozenset(_CONTROL[letter])
        if letter in "pP":
            return self._category(letter == "P")
        if letter == "x":
            return frozenset(self._hexadecimal())
        if letter == "0" or (letter in "1234567" and self._peek() in tuple("01234567")):
            digits = letter
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("")
            return frozenset(chr(int(digits, 8)))
        if letter not in _DIGITS | _LOWER | _UPPER:
            return frozenset(letter)
        raise InvalidExpression(f"invalid escape sequence: \\{letter}")

    def _hexadecimal(self) -> str:
        if self._eat("{"):
            digits, closed, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits, closed = self.text[self.at : self.at + 2], "}"
            self.at += 2
            if len(digits) < 2:
                closed = ""
        if not closed or not digits or not set(digits) <= _POSIX["xdigit"] or int(digits, 16) > 0x10FFFF:
            raise InvalidExpression("invalid escape sequence: \\x")
        return chr(int(digits, 16))

    def _category(self, negated: bool) -> frozenset[str]:
        name = self._next("invalid character class range: \\p")
        if name == "{":
            name, closed, _ = self.text[self.at :].partition("}")
            if not closed:
                raise InvalidExpression("invalid character class range: \\p{")
            self.at += len(name) + 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        if name not in CLASSES:
            raise InvalidExpression(f"invalid character class range: \\p{{{name}}}")
        characters = self._cased(CLASSES[name] | others_of(name, self.others))
        return self.every - characters if negated else characters

    # -- classes

    def _class(self) -> frozenset[str]:
        negated = self._eat("^")
        members: set[str] = set()
        first = True
        while first or not self._eat("]"):
            first = False
            if self._eat("[:"):
                members |= self._posix()
                continue
            low = self._class_item()
            if len(low) == 1 and self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_item()
                if len(high) != 1 or min(high) < min(low):
                    raise InvalidExpression("invalid character class range")
                first_character, last_character = min(low), min(high)
                low = frozenset(character for character in self.every if first_character <= character <= last_character)
            members |= low
        # Fold case before negating the class: (?i)[^a] matches neither form.
        every = self._cased(frozenset(members))
        return self.every - every if negated else every

    def _class_item(self) -> frozenset[str]:
        character = self._next("missing closing ]")
        return self._escaped() if character == "\\" else frozenset(character)

    def _posix(self) -> frozenset[str]:
        name, closed, _ = self.text[self.at :].partition(":]")
        self.at += len(name) + 2
        known = _POSIX.get(name.removeprefix("^"))
        if not closed or known is None:
            raise InvalidExpression(f"invalid character class range: [:{name}:]")
        known = self._cased(known)
        return self.every - known if name.startswith("^") else known
