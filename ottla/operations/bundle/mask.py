"""The mask that removes secrets from a bundle: by setting, by value, and by the word before a value.

Rules:
- A setting is shown when its declaration says that it is no secret. An undeclared setting is hidden, as in Kafka.
- The value of a hidden setting is also masked in every other text: a log may repeat it.
- Text is masked where a word for a secret stands before a value (`password=`, `"token": `), in JAAS lines, private
  keys, tokens of three parts (JWT), headers of HTTP logins, and names and passwords in URLs.
- A secret that is in no setting and has no such word before it is not recognized.
- Every pattern runs in linear time: a node's log holds what clients send.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ottla.settings.server.settings import ServerSettings

HIDDEN = "[hidden]"
#: Shorter values are masked by the word before them alone; those up to the second length where they stand alone.
_VALUE_MIN, _WORD_MAX = 4, 8
#: A line of a key in base64, as PEM has it.
_KEY_LINE_MIN = 32
_SECRET_WORD = (
    r"(?:password|passwd|passphrase|secret|token|hmac|jaas\.config|credentials?|authorization|salt|"
    r"(?:secret|private|access|api|master|stored|server|keystore)[._-]?key)"
)
_ASSIGNED = re.compile(
    rf"({_SECRET_WORD}[\"']{{0,2}}\s{{0,3}}[=:]\s{{0,3}})"
    r"(?!\[hidden\])(\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|(?:Bearer |Basic )?[^\s\"';]+)",
    re.IGNORECASE,
)
_JAAS = re.compile(
    r"(LoginModule\s{1,9}(?:required|requisite|sufficient|optional)\b)"
    r"(?:[^;\n\"']|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)*;?",
    re.IGNORECASE,
)
_JAAS_OPTION = re.compile(r"\b(\w{1,200})\s{0,9}=\s{0,9}(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))")
_LOGIN = re.compile(r"\b(Bearer|Basic) (?!\[hidden\])[\w.~+/=-]{8,}")
_JWT = re.compile(r"\beyJ[\w-]{8,4000}\.[\w-]{4,4000}(?:\.[\w-]{0,4000})?")
_ADDRESS = re.compile(r"://[^\s/@\"']{1,500}@")
_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
_PEM_END = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
#: Options of a login module that name a user and hold no secret.
_OPEN_OPTIONS = frozenset({"username", "serviceName", "tokenauth", "debug"})
_JAAS_SETTING = "sasl.jaas.config"
_SECRET_NAME = re.compile(_SECRET_WORD + "$", re.IGNORECASE)


def is_open(name: str) -> bool:
    """Whether the declaration of this server setting says that its value is no secret."""
    known = ServerSettings.known(name)
    return known is not None and not known.sensitive


class Mask:
    """Hides secrets: those it recognizes and the values passed to `learn`."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: str) -> None:
        """Hide this value wherever it appears."""
        value = value.strip()
        lines = value.splitlines()
        parts = [line for line in lines if len(line) >= _KEY_LINE_MIN] if len(lines) > 1 else [value]
        for part in parts:
            if len(part) >= _VALUE_MIN:
                self._values |= {part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], quote(part)}
                self._pattern = None

    def learn_settings(self, texts: Mapping[str, str]) -> None:
        """Hide the secrets among these server settings wherever they appear."""
        for name, value in texts.items():
            if name.endswith(_JAAS_SETTING):
                for option, quoted, bare in _JAAS_OPTION.findall(value):
                    if option not in _OPEN_OPTIONS:
                        self.learn(quoted or bare)
            elif not is_open(name) and (ServerSettings.known(name) is not None or _SECRET_NAME.search(name)):
                self.learn(value)

    def setting(self, name: str, value: str | None) -> str | None:
        """Return a server setting's value as it may be shown."""
        return value if value is None else self.text(value) if is_open(name) else HIDDEN

    def text(self, text: str) -> str:
        """Return the text with every recognized secret masked."""
        end, begin = _PEM_END.search(text), text.find("-----BEGIN ")
        if end is not None and not 0 <= begin < end.start():
            # The text begins inside a key.
            text = HIDDEN + text[end.end() :]
        text = _PEM.sub(HIDDEN, text)
        if self._values:
            text = self._known().sub(HIDDEN, text)
        text = _JAAS.sub(rf"\1 {HIDDEN};", text)
        text = _ASSIGNED.sub(lambda match: match[1] + (f'"{HIDDEN}"' if match[2][0] == '"' else HIDDEN), text)
        text = _JWT.sub(HIDDEN, text)
        text = _LOGIN.sub(rf"\1 {HIDDEN}", text)
        return _ADDRESS.sub(f"://{HIDDEN}@", text)

    def value(self, value: Any) -> Any:
        """Return a JSON document with all its text masked; a text under a secret's name is hidden whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): HIDDEN
                if isinstance(item, str) and _SECRET_NAME.search(str(key))
                else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else self.text(str(value))

    def _known(self) -> re.Pattern[str]:
        if self._pattern is None:
            long = [re.escape(value) for value in self._values if len(value) > _WORD_MAX]
            short = [rf"(?<!\w){re.escape(value)}(?!\w)" for value in self._values if len(value) <= _WORD_MAX]
            self._pattern = re.compile("|".join(sorted([*long, *short], key=len, reverse=True)))
        return self._pattern
