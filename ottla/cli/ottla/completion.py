"""`ottla completion`: shell completion of tools, options, and names of topics and groups."""

import os

import click

_LINES = {
    "bash": 'eval "$(_OTTLA_COMPLETE=bash_source ottla)"',
    "zsh": 'eval "$(_OTTLA_COMPLETE=zsh_source ottla)"',
    "fish": "_OTTLA_COMPLETE=fish_source ottla | source",
}
_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/ottla.fish"}


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)), required=False)
def completion(shell: str | None) -> None:
    """Print the line that enables completion in SHELL (default: your shell); add it to the shell's startup file."""
    name = shell or os.path.basename(os.environ.get("SHELL", "bash"))
    if name not in _LINES:
        raise click.UsageError(f"no completion for {name} (expected {', '.join(_LINES)})")
    click.echo(_LINES[name])
    click.echo(f"# add this line to {_FILES[name]}", err=True)
