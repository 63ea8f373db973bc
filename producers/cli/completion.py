"""`memline completion`: completion of commands and options in the shell."""

from __future__ import annotations

import click

from memline.producers.cli.options import examples


@click.command(
    epilog=examples(
        'eval "$(memline completion bash)"        # in ~/.bashrc',
        'eval "$(memline completion zsh)"         # in ~/.zshrc',
        "memline completion fish > ~/.config/fish/completions/memline.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from memline.producers.cli import PROGRAM, cli

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
