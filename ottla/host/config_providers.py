"""Config providers: a setting's value may refer to a file, a directory or the environment (KIP-297, KIP-632, KIP-887).

    config.providers=env
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.keystore.password=${env:KEYSTORE_PASSWORD}

Rules:
- `${PROVIDER:KEY}` and `${PROVIDER:PATH:KEY}` are replaced wherever they occur in a value; a name that no provider has
  stays as it is. Providers' own settings cannot refer to providers.
- A reference that cannot be resolved is an error, so that no secret is the text `${...}`. Apache Kafka keeps the text.
- Only a node's own file refers to providers. A dynamic setting keeps its text: a client that may alter settings
  could read the node's files otherwise.
- Errors show the reference, never the value.
- A relative log directory gets its whole path here: clients are told it, and name a directory to move to by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from ottla.kernel.error import OttlaError
from ottla.settings.server.settings import ServerSettings

_NAMES = ServerSettings.config_providers
_PACKAGE = "org.apache.kafka.common.config.provider."
#: The settings that name log directories; one of them may name all with `*`.
_DIRECTORIES = ("log.dir", "log.dirs", "metadata.log.dir", "cordoned.log.dirs")
_ALL = "*"
#: As Kafka's ConfigTransformer: the provider, an optional path, the key.
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

#: Returns the value at (path, key); raises OttlaError with the reason.
_Lookup = Callable[[str, str], str]


def server_settings(texts: Mapping[str, str]) -> ServerSettings:
    """Parse the settings of a file with its references resolved. Raises OttlaError."""
    return ServerSettings.parse(_with_whole_paths(resolve(texts)))


def _with_whole_paths(texts: Mapping[str, str]) -> Mapping[str, str]:
    whole = {name: ",".join(map(_whole_path, text.split(","))) for name, text in texts.items() if name in _DIRECTORIES}
    return {**texts, **whole}


def _whole_path(path: str) -> str:
    named = path.strip()
    return named if named in ("", _ALL) or os.path.isabs(named) else os.path.join(os.getcwd(), named)


def resolve(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with their references replaced. Raises OttlaError with the setting's name and the mend."""
    lookups = {name: _lookup(name, texts) for name in _NAMES.parse(texts.get(_NAMES.name, ""))}
    if not lookups:
        return texts
    return {
        name: text if name.startswith(_NAMES.name) else _replaced(name, text, lookups) for name, text in texts.items()
    }


def _replaced(name: str, text: str, lookups: Mapping[str, _Lookup]) -> str:
    def value(reference: re.Match[str]) -> str:
        provider, path, key = reference.groups()
        if provider not in lookups:
            return reference[0]
        try:
            return lookups[provider](path or "", key)
        except OttlaError as error:
            raise OttlaError(f"{name}: cannot resolve {reference[0]}: {error}") from None

    return _REFERENCE.sub(value, text)


def _lookup(name: str, texts: Mapping[str, str]) -> _Lookup:
    setting = f"{_NAMES.name}.{name}.class"
    java_class = texts.get(setting, "").strip()
    parameter = f"{_NAMES.name}.{name}.param."
    if java_class == f"{_PACKAGE}EnvVarConfigProvider":
        return _environment(parameter, texts)
    if java_class in (f"{_PACKAGE}FileConfigProvider", f"{_PACKAGE}DirectoryConfigProvider"):
        allowed = [each.strip() for each in texts.get(f"{parameter}allowed.paths", "").split(",") if each.strip()]
        if not all(map(os.path.isabs, allowed)):
            raise OttlaError(f"{parameter}allowed.paths={texts[f'{parameter}allowed.paths']}: expected absolute paths")
        found = _in_file if java_class.endswith("FileConfigProvider") else _in_directory
        return lambda path, key: found(_within(path, allowed, f"{parameter}allowed.paths"), key)
    expected = ", ".join(f"{_PACKAGE}{each}ConfigProvider" for each in ("File", "Directory", "EnvVar"))
    raise OttlaError(f"{setting}={java_class}: this node has no such config provider; it has {expected}")


def _environment(parameter: str, texts: Mapping[str, str]) -> _Lookup:
    """The provider of environment variables whose names match `allowlist.pattern` as a whole."""
    pattern = texts.get(f"{parameter}allowlist.pattern", ".*")
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise OttlaError(f"{parameter}allowlist.pattern={pattern}: not a regular expression: {error}") from None

    def found(path: str, key: str) -> str:
        if path:
            raise OttlaError("a reference to the environment has no path; write ${PROVIDER:VARIABLE}")
        if not allowed.fullmatch(key):
            raise OttlaError(f"{parameter}allowlist.pattern does not match {key}")
        if key not in os.environ:
            raise OttlaError(f"the environment variable {key} is not set")
        return os.environ[key]

    return found


def _within(path: str, allowed: list[str], setting: str) -> str:
    """The path, if it is below an allowed one after all links and `..` are followed; without `allowed`, any path."""
    if not path:
        raise OttlaError("the path is missing; write ${PROVIDER:PATH:KEY}")
    real = os.path.realpath(path)
    if allowed and not any(os.path.commonpath((real, above)) == above for above in map(os.path.realpath, allowed)):
        raise OttlaError(f"{path} is not below a path of {setting}")
    return real


def _in_file(path: str, key: str) -> str:
    from ottla.settings.properties import read

    values = read(_content(path))
    if key not in values:
        raise OttlaError(f"the file has no key {key}")
    return values[key]


def _in_directory(path: str, key: str) -> str:
    if key in ("", ".", "..") or "/" in key:
        raise OttlaError("the key must be the name of a file in the directory")
    if not os.path.isdir(path):
        raise OttlaError(f"{path} is not a directory")
    return _content(os.path.join(path, key))


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise OttlaError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OttlaError(f"cannot read {path}: not UTF-8") from None
