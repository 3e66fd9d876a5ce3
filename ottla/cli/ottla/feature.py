"""`ottla features`: the features of a cluster and their levels."""

from __future__ import annotations

import click

from ottla.cli.option import Commands, admin, as_json, cluster, pairs


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def features(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show the features of the cluster, and raise or lower their levels. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


@features.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the features: the level in force, and the levels that the brokers support."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        levels = ask.describe_features()
    documents = [
        {
            "feature": name,
            "level": levels_of_feature.finalized or 0,
            "least": levels_of_feature.min_supported,
            "most": levels_of_feature.max_supported,
        }
        for name, levels_of_feature in sorted(levels.items())
    ]
    if as_json:
        screen.document(documents)
        return
    columns = [screen.Column("feature", "name"), screen.Column("level", numeric=True)]
    columns += [
        screen.Column("least", numeric=True),
        screen.Column("most", numeric=True),
        screen.Column("release", "dim"),
    ]
    rows = [(*row.values(), _release(str(row["feature"]), int(str(row["level"])))) for row in documents]
    screen.table(columns, rows)


def _release(feature: str, level: int) -> str | None:
    from ottla.metadata.feature import METADATA_VERSIONS
    from ottla.metadata.image import METADATA_VERSION

    return METADATA_VERSIONS[level].text if feature == METADATA_VERSION and level in METADATA_VERSIONS else None


@features.command("set")
@cluster
@click.argument("levels", nargs=-1, metavar="FEATURE=LEVEL...")
@click.option("-r", "--release", metavar="VERSION", help="Set all features to the levels of this release, e.g. 4.3.")
@click.option("--downgrade", is_flag=True, help="Allow lower levels if no metadata is lost.")
@click.option("-n", "--dry-run", is_flag=True, help="Only check whether it would work.")
@as_json
def set_(
    bootstrap: str,
    client: tuple[str, ...],
    levels: tuple[str, ...],
    release: str | None,
    downgrade: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the levels of features, all of them or none; level 0 disables a feature."""
    from ottla.cli import screen
    from ottla.operations.features import levels_of, set_levels

    if bool(levels) == bool(release):
        raise click.UsageError("expected either FEATURE=LEVEL or --release")
    wanted = {name: level for name, level in levels_of(release).items() if level} if release else _levels(levels)
    with admin(bootstrap, client) as ask:
        set_levels(ask, wanted, downgrade=downgrade, dry_run=dry_run)
    would = " would work" if dry_run else ""
    screen.report(
        as_json,
        {"features": wanted, "dry_run": dry_run},
        *(f"{name}={level}{would}" for name, level in wanted.items()),
    )


def _levels(levels: tuple[str, ...]) -> dict[str, int]:
    wanted = {}
    for name, level in pairs(levels).items():
        if not level.isdecimal() or int(level) >= 1 << 15:
            raise click.UsageError(f"{name}={level}: expected a whole number below 32768")
        wanted[name] = int(level)
    return wanted
