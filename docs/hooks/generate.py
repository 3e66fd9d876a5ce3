"""The hooks of the site's build: they add the parts of pages that come from code, and lay out HTML for small screens.

The build replaces a line `<!-- generated: NAME -->` by what the function of that name returns, so that the command line
and the error codes are never typed twice. It replaces a link to a file outside of docs/ by the link's text.
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
#: Code within a sentence or a cell, and the options in it, which should not break at a hyphen.
_INLINE_CODE = re.compile(r"<code>[^<\n]+</code>")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_SETTINGS_PATH = "docs/reference/client-settings.md"
_NAME = re.compile(r'<td data-label="setting"><code>[^<]*')


def on_config(config: Any) -> Any:
    """Show the `>>>` lines of docstrings as code, and hide methods that are not for programs (MkDocs calls this)."""
    options = config.plugins["mkdocstrings"].config.handlers["python"]["options"]
    options["filters"] += [f"!^{name}$" for name in internal_methods()]
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


def internal_methods() -> list[str]:
    """Public methods of the asynchronous clients that only the synchronous clients call."""
    client: Any = import_module("ottla.client")
    names = set[str]()
    for kind in ("Producer", "Consumer", "ShareConsumer", "Admin"):
        names |= set(dir(getattr(client, f"Async{kind}"))) - set(dir(getattr(client, kind)))
    return sorted(name for name in names if not name.startswith("_"))


def fenced(lines: list[str]) -> list[str]:
    """Turn each run of `>>>` and `...` lines into a fenced block without the prompts."""
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
    """Return the page with its generated parts and without links that leave the site (MkDocs calls this)."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    return expanded(_inside(markdown, page.file.src_uri))


def on_page_content(html: str, *, page: Any, **_: object) -> str:
    """Prepare the page's tables and words of code for site.css (MkDocs calls this)."""
    html = _TABLE.sub(lambda table: as_entries(table[0]), html)
    html = _INLINE_CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    settings = posixpath.relpath("reference/client-settings.html", posixpath.dirname(page.file.src_uri) or ".")
    return html.replace(_SETTINGS_PATH, f'<a href="{settings}">Client settings</a>') if "/api/" in page.url else html


def as_entries(table: str) -> str:
    """Give a table of HTML a class of its own, every cell its column's name, and every setting breaks at its dots."""
    names = _HEAD.findall(table)
    cells = iter(names * table.count("<tr>"))
    labelled = _CELL.sub(lambda _: f'<td data-label="{next(cells)}"', table)
    named = _NAME.sub(lambda setting: setting[0].replace(".", ".<wbr>"), labelled)
    return named.replace("<table>", '<table class="settings">')


def expanded(markdown: str) -> str:
    """Return the page with its generated parts."""
    return _PLACE.sub(lambda place: _PARTS[place[1]](), markdown)


def _inside(markdown: str, page: str) -> str:
    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
        # A directory has no page.
        return link[1] if target.startswith("../") or link[2].endswith("/") else link[0]

    return _LINK.sub(kept, markdown)


def command_line() -> str:
    """Return every command of `ottla` with its help, as the command line prints it."""
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
    """Return a table of Kafka's error codes: number, name, whether a retry may help, Apache Kafka's message."""
    from ottla.kernel.error import ErrorCode
    from ottla.kernel.error_message import standard

    rows = ["| code | name | retried | Kafka says |", "|---:|---|---|---|"]
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            says = standard(code).replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| {int(code)} | `{code.name}` | {'yes' if code.retriable else 'no'} | {says} |")
    return "\n".join(rows)


def other_decisions() -> str:
    """Return links to the decisions that their index does not name yet."""
    index = (_DECISIONS / "README.md").read_text(encoding="utf-8")
    others = [path for path in sorted(_DECISIONS.glob("[0-9]*.md")) if path.name not in index]
    return "\n".join(f"- [{path.read_text(encoding='utf-8').splitlines()[0][2:]}]({path.name})" for path in others)


_PARTS = {"command_line": command_line, "error_codes": error_codes, "other_decisions": other_decisions}
