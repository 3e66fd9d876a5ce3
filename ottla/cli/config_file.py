"""The config file of the tools: named profiles with client settings, so that secrets stay off the command line.

    current = "prod"

    [profiles.prod]
    bootstrap.servers = "broker.example:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "ann"
    sasl.password = "${env:KAFKA_PASSWORD}"      # or ${file:/run/secrets/kafka}, ${prompt}, or the password itself

Rules:
- The file is `--config`, else OTTLA_CONFIG, else ~/.config/ottla/config.toml (XDG_CONFIG_HOME counts).
- The profile is `--profile`, else OTTLA_PROFILE; else, unless -b or OTTLA_BOOTSTRAP_SERVERS name a cluster, `current`.
  So no password is sent to a cluster that was named by hand.
- A file that holds a secret itself must be readable by its owner only (mode 600). The command line takes no secrets:
  other users of the machine can see it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.kernel.error import OttlaError

_SECRET = re.compile(
    r"(^|\.)(password|secret|passphrase)$|^sasl\.(jaas\.config|oauthbearer\.token)$|^ssl\.(keystore\.key|key\.pem)$"
)
_REFERENCE = re.compile(r"\$\{(?:(env|file):([^}]+)|(prompt))\}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def is_secret(name: str) -> bool:
    """Whether a setting with this name holds a secret. Clients accept "_" for a dot."""
    return bool(_SECRET.search(name.strip().replace("_", ".")))


def is_reference(value: str) -> bool:
    """Whether the value is `${env:NAME}`, `${file:PATH}` or `${prompt}`."""
    return bool(_REFERENCE.fullmatch(value))


def default_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file when no option names one."""
    if named := environment.get("OTTLA_CONFIG"):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "ottla" / "config.toml"


class ConfigFile:
    """The content of the file. A missing file has no profiles."""

    def __init__(self, path: str | Path, *, must_exist: bool = False) -> None:
        self.path = path = Path(path)
        self.current: str | None = None
        self.profiles: dict[str, dict[str, str]] = {}
        try:
            self._text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._text = ""
            if must_exist:
                raise OttlaError(f"{path} does not exist; `ottla profile set NAME KEY=VALUE` creates it") from None
        except (OSError, UnicodeDecodeError) as error:
            raise OttlaError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        self._parse()

    def _parse(self) -> None:
        try:
            document = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise OttlaError(f"{self.path} is not TOML: {error}") from error
        profiles = document.pop("profiles", {})
        current = document.pop("current", None)
        if document:
            raise OttlaError(f"{self.path}: unknown key {min(document)} (expected current and [profiles.NAME])")
        if not isinstance(profiles, dict) or not all(isinstance(profile, dict) for profile in profiles.values()):
            raise OttlaError(f"{self.path}: a profile must be a table: [profiles.NAME]")
        if current is not None and current not in profiles:
            raise OttlaError(f"{self.path}: current = {current!r}, but there is no [profiles.{current}]")
        self.current = current
        self.profiles = {name: _flat(settings, f"{self.path}: {name}") for name, settings in profiles.items()}

    def profile(self, name: str) -> dict[str, str]:
        """Return a profile's settings. OttlaError: there is no such profile, or other users can read its secret."""
        from difflib import get_close_matches

        if name not in self.profiles:
            close = get_close_matches(name, self.profiles, n=1)
            there = f"did you mean {close[0]}?" if close else f"the profiles are {', '.join(self.profiles) or 'none'}"
            raise OttlaError(f"there is no profile {name} in {self.path}; {there}")
        settings = self.profiles[name]
        held = [key for key, value in settings.items() if is_secret(key) and not _REFERENCE.fullmatch(value)]
        if held and stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            raise OttlaError(f"{self.path} holds {held[0]} and other users can read it: chmod 600 {self.path}")
        return settings

    def use(self, name: str) -> None:
        """Make a profile the current one."""
        self.profile(name)
        lines = self._text.splitlines(keepends=True)
        line = f"current = {_quoted(name)}\n"
        top = next((at for at, text in enumerate(lines) if text.lstrip().startswith("[")), len(lines))
        at = next((at for at, text in enumerate(lines[:top]) if re.match(r"\s*current\s*=", text)), None)
        if at is None:
            lines.insert(0, line)
        else:
            lines[at] = line
        self._write("".join(lines), self.profiles, name)

    def change(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Change settings of a profile (None removes one), creating the profile if needed. Comments are kept."""
        lines = self._text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        heading = f"[profiles.{name if _BARE.fullmatch(name) else _quoted(name)}]"
        at = next((at for at, line in enumerate(lines) if line.split("#")[0].strip() == heading), None)
        if at is None:
            lines += ["\n"] * bool(lines) + [f"{heading}\n"]
            at = len(lines) - 1
        after = (n for n in range(at + 1, len(lines)) if lines[n].lstrip().startswith("["))
        end = next(after, len(lines))
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        body = lines[at + 1 : end]
        for key, value in settings.items():
            old = re.compile(rf'\s*"?{re.escape(key)}"?\s*=')
            body = [entry for entry in body if not old.match(entry)]
            if value is not None:
                body.append(f"{key} = {_quoted(value)}\n")
        lines[at + 1 : end] = body
        wanted = dict(self.profiles.get(name, {})) | {
            key: value for key, value in settings.items() if value is not None
        }
        wanted = {key: value for key, value in wanted.items() if settings.get(key, value) is not None}
        self._write("".join(lines), self.profiles | {name: wanted}, self.current)

    def _write(self, text: str, profiles: Mapping[str, Mapping[str, str]], current: str | None) -> None:
        """Write the text if it parses to the expected profiles: a hand-made file may have an unsupported layout."""
        before, self._text = self._text, text
        try:
            self._parse()
            if self.profiles != profiles or self.current != current:
                raise OttlaError("unsupported layout")
        except OttlaError as error:
            self._text = before
            raise OttlaError(f"this tool cannot change {self.path} ({error}); edit it by hand") from error
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, self.path)


def _flat(settings: Mapping[str, Any], where: str, before: str = "") -> dict[str, str]:
    """Flatten TOML tables (a.b = 1) back to Kafka's dotted names, with text values."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            flat |= _flat(value, where, f"{name}.")
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            flat[name] = str(value)
        else:
            raise OttlaError(f"{where}: {name} must be text or a number")
    return flat


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def resolved(settings: Mapping[str, str], ask: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Resolve `${env:NAME}`, `${file:PATH}` and `${prompt}` in settings. `ask(name)` prompts the user."""
    values = {}
    for name, value in settings.items():
        reference = _REFERENCE.fullmatch(value)
        if reference is None:
            values[name] = value
        elif reference[3]:
            values[name] = str(ask(name))
        elif reference[1] == "env":
            if reference[2] not in environment:
                raise OttlaError(f"{name} refers to {value}, but the variable {reference[2]} is not set")
            values[name] = environment[reference[2]]
        else:
            try:
                values[name] = Path(reference[2]).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise OttlaError(f"{name} refers to {value}, which cannot be read: {why}") from error
    return values


def check_command_line(settings: Mapping[str, str]) -> None:
    """Raise OttlaError for a secret given on the command line."""
    for name, value in settings.items():
        if is_secret(name) and not _REFERENCE.fullmatch(value):
            raise OttlaError(
                f"every user of this machine can see {name} on the command line; write "
                f"-X '{name}=${{env:NAME}}', '${{file:PATH}}' or '${{prompt}}', or put it into a profile: "
                f"ottla profile set NAME {name}"
            )
