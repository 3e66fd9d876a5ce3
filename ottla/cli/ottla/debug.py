"""`ottla debug`: an archive with what support needs, without secrets."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from ottla.cli.option import Commands, admin_of, as_json, client_settings, cluster, names_cluster, profile_name
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.operations.bundle.archive import Bundle

#: A call that finds no broker is given up before its part of the bundle is.
_TIMEOUTS = {"default.api.timeout.ms": 10_000, "request.timeout.ms": 8_000}
_MIB = 1 << 20


@click.group(cls=Commands)
@cluster
def debug(bootstrap: str, client: tuple[str, ...]) -> None:
    """Collect what support needs from a cluster or a node, without secrets."""


@debug.command()
@cluster
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Archive to write (default: ottla-debug-TIME.tar.gz)."
)
@click.option(
    "-d",
    "--directory",
    "directories",
    metavar="DIR",
    multiple=True,
    type=click.Path(),
    help="Log directory of a local node.",
)
@click.option("--server-properties", "properties", metavar="FILE", type=click.Path(), help="Settings of a local node.")
@click.option("--node-log", metavar="FILE", type=click.Path(), help="Log file of a local node.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds for the whole bundle."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(_MIB),
    default=64 * _MIB,
    show_default=True,
    help="Size limit of all files, uncompressed.",
)
@as_json
def bundle(
    bootstrap: str,
    client: tuple[str, ...],
    output: str | None,
    directories: tuple[str, ...],
    properties: str | None,
    node_log: str | None,
    timeout: float,
    max_bytes: int,
    as_json: bool,
) -> int:
    """Write one archive with what support needs: versions, settings, features, quorum, partitions, groups and lag, log
    directories, metrics. Secrets are masked as [hidden]; check the archive before you send it.

    With --directory or --server-properties, the archive also has the log, the list of files and, if it is running, the
    thread stacks of that local node. A cluster is then asked only if -b, a profile or OTTLA_BOOTSTRAP_SERVERS names it.
    Missing parts are listed with their errors; exit code 1 when one that should be there is missing or incomplete.
    """
    from pathlib import Path

    from ottla.cli.config_file import is_secret
    from ottla.operations.bundle.archive import Bundle
    from ottla.operations.bundle.cluster import add_cluster
    from ottla.operations.bundle.mask import Mask
    from ottla.operations.bundle.node import add_node, versions

    is_local = bool(directories or properties or node_log)
    mask = Mask()
    path = Path(output or time.strftime("ottla-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    with ExitStack() as stack:
        ask, refused = None, None
        if not is_local or names_cluster() or profile_name() is not None:
            settings = client_settings(bootstrap, client)
            for name, value in settings.items():
                if is_secret(name):
                    mask.learn(str(value))
                    mask.learn_settings({name: str(value)})
            ask, refused = _connect(stack, {**_TIMEOUTS, **settings}, or_raise=not is_local)
        archive = stack.enter_context(Bundle(path, mask, bytes_max=max_bytes, seconds=timeout))
        archive.document("versions.json", "versions of this tool and its libraries, facts about the machine", versions)
        if is_local:
            add_node(archive, directories, properties, node_log)
        if ask is not None:
            add_cluster(archive, ask)
        elif refused is not None:
            archive.fail("cluster.json", refused)
    _report(archive, as_json=as_json)
    return 1 if archive.failed else 0


def _connect(stack: ExitStack, settings: dict[str, object], *, or_raise: bool) -> tuple[Admin | None, str | None]:
    """Return the admin client, or the error that prevents one."""
    from ottla.cli import screen
    from ottla.kernel.error import KafkaError

    try:
        return stack.enter_context(admin_of(settings)), None
    except (OttlaError, KafkaError) as error:
        if or_raise:
            raise
        return None, screen.in_words(error)


def _report(bundle: Bundle, *, as_json: bool) -> None:
    from ottla.cli import screen

    size = bundle.path.stat().st_size
    if as_json:
        about = {"file": str(bundle.path), "bytes": size, "contents": bundle.contents, "missing": bundle.missing}
        return screen.document(bundle.mask.value(about))
    files = screen.counted(len(bundle.contents), "file")
    screen.done(f"{bundle.path}: {files}, {screen.size(size)}; secrets are masked, check it before you send it")
    names: dict[str, list[str]] = {}
    for name, why in bundle.missing.items():
        names.setdefault(why, []).append(name)
    for why, missing in names.items():
        verb = "is" if len(missing) == 1 else "are"
        screen.note(f"{', '.join(missing)} {verb} missing or incomplete: {screen.visible(why)}")
