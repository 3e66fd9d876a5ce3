"""`ottla debug`: what support needs, in one archive without secrets."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from ottla.cli.option import Commands, admin_of, as_json, client_settings, cluster, is_named, profile_name
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.operations.bundle.archive import Bundle

#: A call that finds no broker is given up before its part of the bundle is.
_PATIENCE = {"default.api.timeout.ms": 10_000, "request.timeout.ms": 8_000}
_MIB = 1 << 20


@click.group(cls=Commands)
@cluster
def debug(bootstrap: str, client: tuple[str, ...]) -> None:
    """Collect what support needs of a cluster or a node, without secrets."""


@debug.command()
@cluster
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="The archive (ottla-debug-TIME.tar.gz).")
@click.option(
    "-d", "--directory", "directories", metavar="DIR", multiple=True, type=click.Path(), help="A node's log directory."
)
@click.option("--server-properties", "properties", metavar="FILE", type=click.Path(), help="The node's settings.")
@click.option("--node-log", metavar="FILE", type=click.Path(), help="The file that holds the node's log.")
@click.option("--timeout", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds for all of it.")
@click.option(
    "--max-bytes", type=click.IntRange(_MIB), default=64 * _MIB, show_default=True, help="Of all files, uncompressed."
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
) -> None:
    """Write one archive with what support needs: versions, settings, features, quorum, partitions, groups and lag, log
    directories, metrics. Secrets are masked as [hidden]; look at it before you send it.

    A node of this machine, running or stopped, is named by --directory or --server-properties: then its log, the list
    of its files and, while it runs, the stacks of its threads are in the archive, too. A cluster is asked then only
    where -b, a profile or OTTLA_BOOTSTRAP_SERVERS names it. What could not be had is listed with its error.
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
        if not is_local or is_named() or profile_name() is not None:
            settings = client_settings(bootstrap, client)
            for name, value in settings.items():
                if is_secret(name):
                    mask.learn(str(value))
                    mask.learn_settings({name: str(value)})
            ask, refused = _reached(stack, {**_PATIENCE, **settings}, or_raise=not is_local)
        found = stack.enter_context(Bundle(path, mask, bytes_max=max_bytes, seconds=timeout))
        found.document("versions.json", "what runs this tool, and on which machine", versions)
        if is_local:
            add_node(found, directories, properties, node_log)
        if ask is not None:
            add_cluster(found, ask)
        elif refused is not None:
            found.fail("cluster.json", refused)
    _tell(found, as_json=as_json)


def _reached(stack: ExitStack, settings: dict[str, object], *, or_raise: bool) -> tuple[Admin | None, str | None]:
    """The client, or why there is none."""
    from ottla.cli import screen
    from ottla.kernel.error import KafkaError

    try:
        return stack.enter_context(admin_of(settings)), None
    except (OttlaError, KafkaError) as error:
        if or_raise:
            raise
        return None, screen.in_words(error)


def _tell(bundle: Bundle, *, as_json: bool) -> None:
    from ottla.cli import screen

    size = bundle.path.stat().st_size
    if as_json:
        about = {"file": str(bundle.path), "bytes": size, "contents": bundle.contents, "missing": bundle.missing}
        return screen.document(bundle.mask.value(about))
    files = screen.counted(len(bundle.contents), "file")
    screen.done(f"{bundle.path}: {files}, {screen.size(size)}; secrets are masked, look before you send")
    for name, why in bundle.missing.items():
        screen.note(f"{name} is missing or not whole: {screen.visible(why)}")
