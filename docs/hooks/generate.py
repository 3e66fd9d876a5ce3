"""What the site's build adds to the pages: the parts that come from code, and links that end at the site's edge.

A line `<!-- generated: NAME -->` in a page becomes what the function of that name returns, so that the command line
and the error codes are never typed twice. A link to a file outside of docs/ becomes its text.
"""

import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

_DECISIONS = Path(__file__).parents[1] / "decisions"
_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]+)\]\((?!\w+:|#|/)([^)#\s]+)[^)\s]*\)")
_TABLE = re.compile(r"<table>\s*<thead>\s*<tr>\s*<th>setting</th>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th>(.*?)</th>")
_CELL = re.compile(r"<td\b")
_NAME = re.compile(r'<td data-label="setting"><code>[^<]*')


def on_config(config: Any) -> Any:
    """Docstrings with `>>>` become blocks of code (MkDocs calls this)."""
    markdown: Any = import_module("markdown")
    preprocessors: Any = import_module("markdown.preprocessors")
    before_fences = 28

    class Doctest(preprocessors.Preprocessor):  # type: ignore[misc]
        def run(self, lines: list[str]) -> list[str]:
            return fenced(lines)

    class Doctests(markdown.Extension):  # type: ignore[misc]
        def extendMarkdown(self, md: Any) -> None:  # noqa: N802
            md.preprocessors.register(Doctest(md), "doctest", before_fences)

    config.markdown_extensions.append(Doctests())
    return config


def fenced(lines: list[str]) -> list[str]:
    """Each run of `>>>` and `...` lines as a fenced block, without the prompts."""
    out: list[str] = []
    inside = False
    for line in lines:
        prompt = line.startswith((">>> ", "... ")) and (inside or line.startswith(">>> "))
        if prompt and not inside:
            out += ["", "```python"]
        elif inside and not prompt:
            out += ["```", ""]
        inside = prompt
        out.append(line[4:] if prompt else line)
    return [*out, "```"] if inside else out


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """The page with its generated parts and without links that leave the site (MkDocs calls this)."""
    return expanded(_inside(markdown, page.file.src_uri))


def on_page_content(html: str, **_: object) -> str:
    """The page with tables of settings as entries below each other, which site.css lays out (MkDocs calls this)."""
    return _TABLE.sub(lambda found: as_entries(found[0]), html)


def as_entries(table: str) -> str:
    """A table of HTML with a class of its own; every cell knows its column's name, and a setting breaks at its dots."""
    names = _HEAD.findall(table)
    cells = iter(names * table.count("<tr>"))
    labelled = _CELL.sub(lambda found: f'<td data-label="{next(cells)}"', table)
    named = _NAME.sub(lambda found: found[0].replace(".", ".<wbr>"), labelled)
    return named.replace("<table>", '<table class="settings">')


def expanded(markdown: str) -> str:
    """The page with its generated parts."""
    return _PLACE.sub(lambda found: _PARTS[found[1]](), markdown)


def _inside(markdown: str, page: str) -> str:
    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), found[2]))
        # A directory is no page, unless it has an index.
        return found[1] if target.startswith("../") or found[2].endswith("/") else found[0]

    return _LINK.sub(link, markdown)


def command_line() -> str:
    """Every command of `ottla` with its help, as the command line itself prints it."""
    from ottla.cli.ottla.root import ottla

    return "\n".join(_command(click.Context(ottla, info_name="ottla"), 2))


def _command(context: click.Context, level: int) -> Iterator[str]:
    command = context.command
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _command(click.Context(inner, info_name=name, parent=context), min(level + 1, 3))


def error_codes() -> str:
    """A table of Kafka's error codes: number, name, whether a retry may help, what is said of it."""
    from ottla.kernel.error import ErrorCode
    from ottla.kernel.error_message import standard

    rows = ["| code | name | retried | Kafka says |", "|---:|---|---|---|"]
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            says = standard(code).replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| {int(code)} | `{code.name}` | {'yes' if code.retriable else 'no'} | {says} |")
    return "\n".join(rows)


def other_decisions() -> str:
    """Records that the index of decisions does not name yet."""
    index = (_DECISIONS / "README.md").read_text(encoding="utf-8")
    others = [path for path in sorted(_DECISIONS.glob("[0-9]*.md")) if path.name not in index]
    return "\n".join(f"- [{path.read_text(encoding='utf-8').splitlines()[0][2:]}]({path.name})" for path in others)


_PARTS = {"command_line": command_line, "error_codes": error_codes, "other_decisions": other_decisions}
