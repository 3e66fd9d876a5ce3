"""`ottla completion`: the line that makes a shell complete the tools, their options, and names of topics and groups."""

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
    """Print the line that makes SHELL (yours, when not given) complete these tools; add it to the shell's file."""
    name = shell or os.path.basename(os.environ.get("SHELL", "bash"))
    if name not in _LINES:
        raise click.UsageError(f"there is no completion for {name}; there is for {', '.join(_LINES)}")
    click.echo(_LINES[name])
    click.echo(f"# add this line to {_FILES[name]}", err=True)
