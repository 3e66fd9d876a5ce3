"""The files that the tidy tests look at."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Places that hold no text of ours: what tools and runs leave behind.
_LEFT_BEHIND = {
    ".git",
    ".venv",
    ".cache",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".import_linter_cache",
    "__pycache__",
    "build",
    "dist",
    "demo-output",
    "ottla-data",
    "node_modules",
    "target",
}
_TEXT = {".py", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".java", ".go", ".js", ".mjs", ".sh", ".xml", ".psv"}


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_BEHIND or path.name.endswith(".egg-info") or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


@cache
def files() -> tuple[Path, ...]:
    """Every file of the tree."""
    return tuple(_walk(ROOT))


@cache
def texts() -> dict[str, str]:
    """Path within the tree to text, of everything that people write."""
    written = [path for path in files() if path.suffix in _TEXT or path.name in ("Makefile", "run", ".gitignore")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in written}


@cache
def modules(*tops: str) -> dict[str, str]:
    """Path to text of the Python files below the given directories."""
    return {path: text for path, text in texts().items() if path.endswith(".py") and path.split("/")[0] in tops}


@cache
def tree(path: str) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(texts()[path], path)


@cache
def packages() -> tuple[str, ...]:
    """The packages below `ottla`, one level."""
    return tuple(sorted(path.split("/")[1] for path in texts() if path.startswith("ottla/") and _is_package(path)))


def _is_package(path: str) -> bool:
    return path.count("/") == 2 and path.endswith("/__init__.py")


def prose_lines(path: str) -> Iterator[tuple[int, str, bool]]:
    """(number, text, does a docstring or comment begin here?) for each line of prose in a module."""
    lines = texts()[path].split("\n")
    in_docstring = {
        number
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    comments_before = False
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        is_comment = stripped.startswith("#") and number not in in_docstring
        if is_comment or number in in_docstring:
            text = stripped.lstrip("#:").strip() if is_comment else stripped
            begins = (is_comment and not comments_before) or (not is_comment and text.startswith('"""'))
            yield number, text.removeprefix('"""'), begins
        comments_before = is_comment
