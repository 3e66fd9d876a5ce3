"""The root command `ottla`: the list of tools, and the handling of their errors.

Rules:
- A tool's file is imported only when that tool runs, so its line of help is in this file.
- An OttlaError or KafkaError is one line on stderr and exit code 1; a usage error is exit code 2.
- An OSError is reported like an OttlaError, with the file's name.
- With --json, that line is a JSON object: `error` (the name of Kafka's error code, or null) and `message`. A usage
  error stays text.
- Ctrl-C is exit code 130; a reader that closes the pipe (`ottla consume ... | head`) is no error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from ottla.cli.option import cluster
from ottla.cli.process import as_ottla_error, run_and_exit
from ottla.cli.stdout import discard
from ottla.kernel.error import KafkaError, OttlaError

#: Tool to (where it is, the line about it), in the order of `ottla --help`.
_TOOLS = {
    "start": ("ottla.cli.ottla.start:start", "Run a node: a single-node cluster, or a node from a server.properties."),
    "storage": ("ottla.cli.ottla.storage:storage", "Format the log directories of a node."),
    "topics": ("ottla.cli.ottla.topic:topics", "List, create, describe, copy, compare, analyze and delete topics."),
    "produce": ("ottla.cli.ottla.produce:produce", "Write records from the terminal, a pipe or a file."),
    "consume": ("ottla.cli.ottla.consume:consume", "Read existing and new records."),
    "import": ("ottla.cli.ottla.produce:import_", "Write the rows of a CSV, JSON-lines or Parquet file to a topic."),
    "export": ("ottla.cli.ottla.export:export", "Write the records of a topic to a CSV, JSON-lines or Parquet file."),
    "groups": ("ottla.cli.ottla.group:groups", "List and describe groups, see their lag, reset their offsets."),
    "streams": ("ottla.cli.streams.command:streams", "Run stream programs, watch them, reset them."),
    "configs": ("ottla.cli.ottla.config:configs", "Show, explain and change settings."),
    "transactions": ("ottla.cli.ottla.transaction:transactions", "List transactions, find and abort hanging ones."),
    "quotas": ("ottla.cli.ottla.quota:quotas", "Show and change the quotas of users, clients and addresses."),
    "users": ("ottla.cli.ottla.user:users", "List users with a password (SCRAM), set and delete passwords."),
    "acls": ("ottla.cli.ottla.acls.acl:acls", "Show and change the rules (ACLs) of principals."),
    "tokens": ("ottla.cli.ottla.token:tokens", "Create, renew, expire and describe delegation tokens."),
    "profile": ("ottla.cli.ottla.profile:profile", "List and change profiles: named clusters with client settings."),
    "cluster": (
        "ottla.cli.ottla.cluster.cluster:cluster",
        "Show nodes, quorum, disks and health; run a local cluster.",
    ),
    "top": ("ottla.cli.top:top", "Watch the rates of topics and the lag of groups."),
    "quorum": ("ottla.cli.ottla.quorum:quorum", "Show the controllers of the quorum, add and remove voters."),
    "partitions": ("ottla.cli.ottla.partition:partitions", "Find partitions in trouble, move them, elect leaders."),
    "disks": ("ottla.cli.ottla.disk:disks", "Show the log directories and what uses their space."),
    "features": ("ottla.cli.ottla.feature:features", "Show the features of the cluster, raise or lower their levels."),
    "debug": ("ottla.cli.ottla.debug:debug", "Collect what support needs from a cluster or a node, without secrets."),
    "perf": ("ottla.cli.ottla.perf:perf", "Measure the throughput and latency of a cluster."),
    "dump-log": ("ottla.cli.ottla.dump:dump_log", "Show the content of log files."),
    "completion": (
        "ottla.cli.ottla.completion:completion",
        "Print the line that enables shell completion of these tools.",
    ),
}


#: Packages that the extra ottla[spark] brings, without which `ottla streams` cannot work. Other tools name their extra.
_SPARK_PACKAGES = {"numpy", "pandas", "pyarrow", "pyspark"}


class Tools(click.Group):
    """A command group that imports a command when it runs, not when it is listed."""

    def invoke(self, context: click.Context) -> Any:
        """Run the tool. When the reader closes the pipe, end quietly and discard what is still buffered."""
        try:
            return self._invoke(context)
        except BrokenPipeError:
            discard()
            return 0
        except (OttlaError, KafkaError, OSError) as error:
            if not context.meta.get("ottla.json"):
                raise
            from ottla.cli.screen import complain_as_json

            complain_as_json(as_ottla_error(error) if isinstance(error, OSError) else error)
            return 1

    def _invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _SPARK_PACKAGES:
                raise
            tool = f"{context.command_path} {context.invoked_subcommand}"
            raise OttlaError(f"`{tool}` needs {error.name}: pip install 'ottla[spark]'") from error

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the tools in the order of `_TOOLS`."""
        return list(_TOOLS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command; None for an unknown tool."""
        if name not in _TOOLS:
            return None
        module, _, attribute = _TOOLS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve like click, but suggest the closest name for an unknown tool."""
        if arguments and arguments[0] not in _TOOLS and not arguments[0].startswith("-"):
            hint = _nearest(_close(arguments[0], list(_TOOLS)))
            raise click.UsageError(f"there is no tool called {arguments[0]}{hint}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the tools without importing any."""
        with formatter.section("Tools"):
            formatter.write_dl([(name, line) for name, (_, line) in _TOOLS.items()])


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from ottla import __version__

        click.echo(f"ottla {__version__}")
        context.exit()


@click.group(cls=Tools, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@cluster
@click.option(
    "--version", is_flag=True, callback=_print_version, expose_value=False, is_eager=True, help="Show the version."
)
def ottla(bootstrap: str, client: tuple[str, ...]) -> None:
    """Apache Kafka's job done in Python: a node, and tools for any Kafka cluster.

    `ottla start` runs a node on 127.0.0.1:9092 with its data in ./ottla-data. The tools connect to 127.0.0.1:9092, or
    to the cluster named by -b HOST:PORT, OTTLA_BOOTSTRAP_SERVERS in the environment, or a profile (`ottla profile`).
    """


def run() -> NoReturn:
    """Run the tool that the command line names, and exit with its exit code."""
    run_and_exit(_run)


def _run() -> Any:
    try:
        return ottla.main(prog_name="ottla", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.UsageError as error:
        _report_usage_error(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code


#: Click's words for a value that is no number.
_WORDS = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float": "is not a number",
    "is not in the range x>=": "is less than ",
}


def _report_usage_error(error: click.UsageError) -> None:
    """Print the error and the command whose --help to read. A command group without a command prints its help."""
    from ottla.cli.screen import styled

    context = error.ctx
    if context is not None and isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        click.echo(context.get_help(), err=True)
        return
    # Click lists the choices of an argument over several lines.
    message = re.sub(r"\s*\n\s*", " ", error.format_message()).rstrip(".")
    for click_says, we_say in _WORDS.items():
        message = message.replace(click_says, we_say)
    if isinstance(error, click.exceptions.NoSuchOption):
        message = f"there is no option {error.option_name}{_nearest(error.possibilities or ())}"
    elif context is not None and isinstance(context.command, click.Group) and message.startswith("No such command"):
        names = context.command.list_commands(context)
        wrong = message.partition("'")[2].partition("'")[0]
        hint = _nearest(_close(wrong, names)) or f"; there are {', '.join(names)}"
        message = f"there is no command {wrong} in {context.command_path}{hint}"
    first = message.partition(" ")[0]
    if first.isalpha() and first[1:].islower():
        # Click's messages begin with a capital letter; a file name keeps its case.
        message = f"{first.lower()}{message[len(first) :]}"
    click.echo(f"{styled('ottla:', 'red', bold=True)} {message}", err=True)
    if context is not None:
        click.echo(styled(f"       see {context.command_path} --help", dim=True), err=True)


def _nearest(names: Sequence[str]) -> str:
    return f"; did you mean {names[0]}?" if names else ""


def _close(wrong: str, names: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(wrong, names, n=1)
