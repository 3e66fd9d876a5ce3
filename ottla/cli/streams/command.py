"""`ottla streams`: run stream programs on Spark, watch them, reset them."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.cli.option import Commands, admin, as_json, client_settings, cluster, confirm, pairs, yes_option
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ottla.cli.streams.view import StreamsSample
    from ottla.client import Admin
    from ottla.spark.streams.last_run import Alive, LastRun
    from ottla.streams import Application, State


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def streams(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Run stream programs, watch them, reset them. Without a command, list the applications that have run."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


@streams.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the applications that have run on this cluster, with their tasks and lag."""
    from ottla.cli import screen
    from ottla.cli.streams import view

    rows = []
    with admin(bootstrap, client) as ask:
        for application in view.application_ids(ask):
            run, alive = view.last_run_of(ask, client_settings(bootstrap, client), application)
            rows.append(
                {
                    "application": application,
                    "state": view.state(alive),
                    "tasks": len(run.tasks),
                    "stores": len(run.stores),
                    "lag": sum(row["lag"] for row in view.task_rows(run, view.take_sample(ask, run), None)),
                    "started": screen.instant(run.started_ms),
                    "guarantee": run.guarantee,
                }
            )
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("application", "name"), screen.Column("state")]
    columns += [screen.Column(name, numeric=True) for name in ("tasks", "stores", "lag")]
    columns += [screen.Column("started", "dim", whole=True), screen.Column("guarantee", "dim")]
    screen.table(
        columns, [tuple(document.values()) for document in rows], empty="no stream application has run on this cluster"
    )


@streams.command()
@cluster
@click.argument("program", metavar="FILE[:NAME]")
@click.option("--master", metavar="URL", help="Spark master: local[N], spark://HOST:PORT, yarn, sc://HOST:PORT.")
@click.option("-S", "--spark", "spark", metavar="KEY=VALUE", multiple=True, help="Spark setting; may be repeated.")
@click.option("--py-files", metavar="FILE,...", help="More files for the workers, besides those in FILE's directory.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of Spark tasks that share the work (default: the number of cores).",
)
@click.option("--http", metavar="[HOST:]PORT", help="Serve metrics and store queries at this address.")
@click.option("--accept-changes", is_flag=True, help="Start even if state of the last run is lost.")
@click.option("--real-time", is_flag=True, help="Use Spark's real-time mode: column expressions only, at least once.")
def run(
    bootstrap: str,
    client: tuple[str, ...],
    program: str,
    master: str | None,
    spark: tuple[str, ...],
    py_files: str | None,
    workers: int | None,
    http: str | None,
    accept_changes: bool,
    real_time: bool,
) -> None:
    """Run the application in a Python file on Spark, exactly once, until Ctrl-C or SIGTERM.

    FILE assigns the result of StreamsBuilder.build to a name; if there are several, choose one: app.py:fraud. The file
    must not start the application when it is imported.
    """
    from ottla.cli import screen
    from ottla.cli.reach import reach
    from ottla.cli.streams.load import load

    chosen = pairs(spark, "-S")
    settings = client_settings(bootstrap, client)
    app = load(program)
    reach(bootstrap, settings)
    app.on_state_change(lambda new, old: _tell(app, new))
    signal.signal(signal.SIGTERM, _terminated)
    try:
        running = app.start(
            str(settings.pop("bootstrap.servers")),
            master=master,
            spark_settings=chosen,
            py_files=[part for part in (py_files or "").split(",") if part],
            workers=workers,
            client=settings,
            accept_changes=accept_changes,
            http=http,
            real_time=real_time,
        )
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None
    many = f"{screen.counted(len(running.program.tasks), 'task')} on {screen.counted(running.slots, 'worker')}"
    screen.hint(f"{many}; `ottla streams describe {app.application_id}` shows its lag")
    try:
        app.await_termination()
    finally:
        app.stop()


def _tell(app: Application, new: State) -> None:
    from ottla.cli import screen

    screen.note(f"{app.application_id} is {new.value}")


def _terminated(number: int, frame: Any) -> NoReturn:
    raise SystemExit(0)


@streams.command()
@cluster
@click.argument("application", metavar="APPLICATION|FILE[:NAME]")
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C, with rates.")
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between updates.")
@click.option("--explain", is_flag=True, help="With a FILE: show the plan, step by step, instead of the topology.")
@as_json
def describe(
    bootstrap: str,
    client: tuple[str, ...],
    application: str,
    watch: bool,
    interval: float,
    explain: bool,
    as_json: bool,
) -> None:
    """Show the topology, stores, tasks, lag and rates of an application.

    APPLICATION is the application.id of an application that has run on the cluster. With a FILE, show the topology of
    the program without asking a cluster; it need not have run.
    """
    from ottla.cli import screen
    from ottla.cli.streams import view

    if ".py" in application:
        from ottla.cli.streams.load import load

        app = load(application)
        if as_json:
            screen.document({"application": app.application_id, "topology": app.describe(), "plan": app.explain()})
        else:
            click.echo(app.explain() if explain else app.describe())
        return
    if explain:
        raise click.UsageError("--explain needs the file of a program: the cluster stores only its topology")
    settings = client_settings(bootstrap, client)
    with admin(bootstrap, client) as ask:
        last, alive = view.last_run_of(ask, settings, application)
        before = view.take_sample(ask, last)
        if not watch:
            _show(last, alive, before, None, as_json=as_json)
        elif screen.on_terminal() and not as_json:
            _watch(ask, last, before, interval)
        else:
            while True:
                time.sleep(interval)
                now = view.take_sample(ask, last)
                _show(last, alive, now, before, as_json=as_json, again=True)
                before = now


def _show(
    last: LastRun,
    alive: Alive | None,
    now: StreamsSample,
    before: StreamsSample | None,
    *,
    as_json: bool,
    again: bool = False,
) -> None:
    from ottla.cli import screen
    from ottla.cli.streams import view

    tasks, stores = view.task_rows(last, now, before), view.store_rows(last)
    if as_json:
        document = {
            "application": last.application_id,
            "state": view.state(alive),
            "runs_on": None if alive is None else alive._asdict(),
            "started_ms": last.started_ms,
            "guarantee": last.guarantee,
            "lag": sum(row["lag"] for row in tasks),
            "tasks": tasks,
            "stores": stores,
            "topology": last.topology,
        }
        (screen.line if again else screen.document)(document)
        return
    if not again:
        screen.heading(last.application_id, _about(last, alive, tasks))
        if screen.on_terminal():
            click.echo(last.topology.rstrip() + "\n")
    screen.table(*_task_table(tasks))
    if stores and not again and screen.on_terminal():
        screen.out().print()
        screen.table(*_store_table(stores))


def _about(last: LastRun, alive: Alive | None, tasks: list[dict[str, Any]]) -> str:
    from ottla.cli import screen
    from ottla.cli.streams import view

    lag = sum(row["lag"] for row in tasks)
    state = view.state(alive)
    if alive is not None and alive.runs:
        state += f" on {alive.host} (pid {alive.pid}, {screen.counted(alive.workers, 'worker')})"
    many = screen.counted(len(tasks), "task")
    return f"{state}, {last.guarantee}, {many}, lag {lag:,}, started {screen.instant(last.started_ms)}"


def _task_table(tasks: list[dict[str, Any]]) -> tuple[list[Any], list[list[Any]]]:
    from ottla.cli import screen

    columns = [screen.Column("task", "name"), screen.Column("reads")]
    columns += [screen.Column("lag", numeric=True), screen.Column("records/s", numeric=True)]
    columns += [screen.Column("stream time", whole=True), screen.Column("stores", "dim")]
    rows = [
        [row["task"], ", ".join(row["reads"]), _lag(row["lag"]), row["records_per_s"],
         screen.instant(row["stream_time_ms"]), ", ".join(row["stores"]) or None]
        for row in tasks
    ]  # fmt: skip
    return columns, rows


def _store_table(stores: list[dict[str, Any]]) -> tuple[list[Any], list[list[Any]]]:
    from ottla.cli import screen

    columns = [screen.Column("store", "name"), screen.Column("kind"), screen.Column("key"), screen.Column("value")]
    columns += [screen.Column("tasks", numeric=True), screen.Column("changelog", "dim")]
    return columns, [list(row.values()) for row in stores]


def _lag(lag: int) -> Any:
    from ottla.cli import screen

    return screen.coloured(f"{lag:,}" if screen.on_terminal() else lag, "green" if lag == 0 else "yellow")


def _watch(ask: Admin, last: LastRun, before: StreamsSample, interval: float) -> None:
    """Show the live view on the terminal's alternate screen."""
    from rich.live import Live

    from ottla.cli import screen
    from ottla.cli.streams import view

    try:
        with Live(console=screen.out(), screen=True, auto_refresh=False) as live:
            live.update(_page(last, before, None), refresh=True)
            while True:
                time.sleep(interval)
                now = view.take_sample(ask, last)
                live.update(_page(last, now, before), refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _page(last: LastRun, now: StreamsSample, before: StreamsSample | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from ottla.cli import screen
    from ottla.cli.streams import view

    tasks = view.task_rows(last, now, before)
    room = max(3, screen.out().height - 8 - len(last.stores))
    rate = sum(row["records_per_s"] or 0 for row in tasks)
    head = Text.assemble(
        (f"{last.application_id}  ", "bold"),
        f"{rate:,.0f} records/s, lag {sum(row['lag'] for row in tasks):,}  ",
        (time.strftime("%H:%M:%SZ", time.gmtime()) + "  Ctrl-C to stop", "dim"),
    )
    most_behind = sorted(tasks, key=lambda row: -row["lag"])
    parts: list[RenderableType] = [head, Text(), screen.fitting(*_task_table(most_behind[:room]))]
    if len(tasks) > room:
        parts.append(Text(f"and {len(tasks) - room:,} more tasks", style="dim"))
    if last.stores:
        parts += [Text(), screen.fitting(*_store_table(view.store_rows(last)))]
    return Group(*parts)


@streams.command()
@cluster
@click.argument("application")
@click.option(
    "--to", "target", default="earliest", show_default=True, metavar="WHERE",
    help="Where to start in the input: earliest, latest, an offset, -N, a time, or a time ago (2h).",
)  # fmt: skip
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--force", is_flag=True, help="Stop the application first if it is running.")
@yes_option
@as_json
def reset(
    bootstrap: str,
    client: tuple[str, ...],
    application: str,
    target: str,
    dry_run: bool,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Reset an application: set the offsets of its input, delete its state and internal topics.

    A running application is refused; --force first stops its workers and removes the members of its group. For
    applications of Java's Kafka Streams use kafka-streams-application-reset.
    """
    from ottla.cli import screen
    from ottla.cli.place import offsets_at
    from ottla.cli.streams import view
    from ottla.client import TopicPartition
    from ottla.operations.group_offsets import check_empty
    from ottla.operations.streams_topic import internal_topics

    with admin(bootstrap, client) as ask:
        last, alive = view.last_run_of(ask, client_settings(bootstrap, client), application)
        topics = [topic.name for topic in ask.list_topics()]
        doomed = internal_topics(application, topics)
        inputs = [name for name in last.input_topics if name in topics]
        described = ask.describe_topics(inputs).check() if inputs else {}
        places = [
            TopicPartition(name, partition.partition) for name in inputs for partition in described[name].partitions
        ]
        before = {place: committed.offset for place, committed in ask.list_group_offsets(application).items()}
        goals = offsets_at(ask, places, target) if places else {}
        if not dry_run:
            if not force:
                check_empty(ask, application)
                if alive is not None and alive.runs:
                    raise OttlaError(
                        f"{application} is running on {alive.host} (pid {alive.pid}): stop it first, or use --force; "
                        "-n shows what a reset would change"
                    )
            question = (
                f"reset {application}: {screen.counted(len(places), 'input partition')} to {target}, "
                f"{screen.counted(len(doomed), 'topic')} deleted?"
            )
            confirm(question, yes=yes)
            _end(ask, client_settings(bootstrap, client), last, alive)
            if last.guarantee == "exactly_once_v2":
                ask.fence_producers(last.transactional_ids).check()
            if goals:
                ask.alter_group_offsets(application, goals).check()
            ask.delete_topics(doomed).check()
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "before": before.get(tp), "after": goals[tp]} for tp in places
    ]
    if as_json:
        screen.document({"offsets": rows, "deleted_topics": doomed, "dry_run": dry_run})
    else:
        _show_reset(application, rows, doomed, dry_run=dry_run)


def _end(ask: Admin, settings: dict[str, Any], last: LastRun, alive: Alive | None) -> None:
    """Stop the application's workers and remove the members of its group."""
    from ottla.cli import screen
    from ottla.kernel.error import ErrorCode, KafkaError
    from ottla.spark.streams.last_run import end

    runs = alive is not None and alive.runs
    if not end(ask, settings, last) and runs and alive is not None:
        screen.hint(
            f"{last.application_id} on {alive.host} (pid {alive.pid}) does not answer: stop that process; its workers "
            "end when they notice the reset"
        )
    try:
        if ask.describe_group(last.application_id).members:
            ask.remove_group_members(last.application_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise


def _show_reset(application: str, rows: list[dict[str, Any]], doomed: list[str], *, dry_run: bool) -> None:
    from ottla.cli import screen

    columns = [screen.Column("topic", "name")]
    columns += [screen.Column(name, numeric=True) for name in ("partition", "before", "after")]
    screen.table(columns, [tuple(row.values()) for row in rows])
    for name in doomed:
        if dry_run:
            screen.hint(f"{name} would be deleted")
        else:
            screen.done(f"{name} deleted")
    if dry_run:
        screen.hint("nothing was changed (--dry-run)")
    else:
        screen.done(f"{application} starts from these offsets at its next start")
