"""`kafka-configs --alter`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.cli.kafka.configs.config_entity import QUOTA_NAMES, Entities
from ottla.cli.kafka.configs.config_view import RESOURCE_TYPES, quotas_of, settings_of
from ottla.cli.kafka.program.option import Given, double, int32
from ottla.cli.kafka.program.tool import Failed, load
from ottla.settings.quota import AddressQuotas, UserQuotas

if TYPE_CHECKING:
    from ottla.client import Admin

_SCRAM = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
_ITERATIONS = 4096
#: A comma, or an equals sign, that does not stand between brackets.
_OUTSIDE = r"(?=[^\]]*(?:\[|$))"
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")


def alter(given: Given, client: Admin, entities: Entities) -> None:
    """Make the changes, and print that they are done."""
    from ottla.client import ConfigResource, ResourceType

    added, deleted = _added(given), [setting.strip() for setting in given.values("delete-config")]
    kind, name = entities.kind, entities.names[0]
    if kind == "broker-loggers":
        known = {entry.name for entry in settings_of(client, kind, name, everything=True)}
        if wrong := [setting for setting in (*deleted, *added) if setting not in known]:
            raise Failed(f"Invalid broker logger(s): {','.join(wrong)}")
    if kind in RESOURCE_TYPES:
        resource = ConfigResource(ResourceType[RESOURCE_TYPES[kind]], name)
        client.alter_config(resource, {**dict.fromkeys(deleted), **added})
    elif kind == "ips":
        if unknown := [setting for setting in (*added, *deleted) if setting not in AddressQuotas.declared()]:
            raise Failed(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config "
                f"names: {','.join(unknown)}"
            )
        _alter_quotas(client, entities, added, deleted)
    else:
        _alter_users(client, entities, added, deleted)
    if name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def _added(given: Given) -> dict[str, str]:
    settings = load(given["add-config-file"]) if "add-config-file" in given else {}
    if "add-config" in given:
        for entry in re.split("," + _OUTSIDE, given["add-config"]):
            parts = re.split(r"\s*=\s*" + _OUTSIDE, entry)
            if len(parts) != 2:
                raise Failed(
                    "requirement failed: Invalid entity config: all configs to be added must be in the format "
                    '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
                )
            settings[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    for name in settings:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", name):
            raise Failed(f"Invalid character found for config key: {name}")
    return settings


def _alter_users(client: Admin, entities: Entities, added: dict[str, str], deleted: list[str]) -> None:
    def split(names: list[str]) -> tuple[list[str], list[str], list[str]]:
        quotas = [name for name in names if name in UserQuotas.declared()]
        scram = [name for name in names if name in _SCRAM]
        return quotas, scram, [name for name in names if name not in quotas and name not in scram]

    quotas, scram, unknown = split(list(added))
    old_quotas, old_scram, old_unknown = split(deleted)
    both = entities.kind == "clients" or len(entities.kinds) == 2
    allowed = "quota" if both else "quota and SCRAM credential"
    kind = "clients" if both else "users"
    for verb, refused in (
        ("added", [*unknown, *(scram if both else [])]),
        ("deleted", [*old_unknown, *(old_scram if both else [])]),
    ):
        if refused:
            # Scala's format of a collection.
            shown = f"{'Set' if verb == 'added' else 'List'}({', '.join(refused)})"
            raise Failed(
                f"Only {allowed} configs can be {verb} for '{kind}' using --bootstrap-server. Unexpected config names: "
                f"{shown}"
            )
    if scram or old_scram:
        if "" in entities.names:
            raise Failed(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        if quotas or old_quotas:
            raise Failed(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
                "--bootstrap-server."
            )
        _alter_credentials(client, entities.names[0], {mechanism: added[mechanism] for mechanism in scram}, old_scram)
        return
    _alter_quotas(client, entities, added, deleted)


def _alter_credentials(client: Admin, user: str, added: dict[str, str], deleted: list[str]) -> None:
    from ottla.client.admin.credential import ScramCredential, ScramDeletion, ScramMechanism

    def mechanism(name: str) -> ScramMechanism:
        return ScramMechanism[name.replace("-", "_")]

    changes: list[ScramCredential | ScramDeletion] = [
        ScramDeletion(user, mechanism(mechanism_name)) for mechanism_name in deleted
    ]
    changes += [
        ScramCredential(user, mechanism(mechanism_name), *_credential(mechanism_name, text))
        for mechanism_name, text in added.items()
    ]
    client.alter_scram_credentials(changes).check()


def _credential(mechanism: str, text: str) -> tuple[str, int]:
    """Parse a credential to (password, iterations)."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise Failed(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
    try:
        iterations = _ITERATIONS if match[1] in (None, "", "-1") else int32(match[1])
    except ValueError:
        raise Failed(f'For input string: "{match[1]}"') from None
    if iterations < _SCRAM[mechanism]:
        raise Failed(f"Iterations {iterations} is less than the minimum {_SCRAM[mechanism]} required for {mechanism}")
    return match[2], iterations


def _alter_quotas(client: Admin, entities: Entities, added: dict[str, str], deleted: list[str]) -> None:
    old = next(iter(quotas_of(client, entities).values()), {})
    if wrong := [quota for quota in deleted if quota not in old]:
        raise Failed(f"Invalid config(s): {','.join(wrong)}")
    changes: dict[str, float | None] = dict.fromkeys(deleted)
    for name, text in added.items():
        try:
            changes[name] = double(text)
        except ValueError:
            raise Failed(f"Cannot parse quota configuration value for {name}: {text}") from None
    pairs = zip(entities.kinds, entities.names, strict=True)
    entity = {QUOTA_NAMES[kind]: name or None for kind, name in pairs}
    client.alter_client_quotas([(entity, changes)]).check()
