"""`memline agent`: which index host serves which agent, and moving one to another host."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from memline.producers.actions import move as moving
from memline.producers.actions.move import listed
from memline.producers.calls.table import CALLS
from memline.producers.cli.options import Invocation, command, echo, once_a_minute, print_result
from memline.producers.cli.table_commands import asks, note
from memline.shared.config.installation import HOST_NAME
from memline.shared.errors import ConfigError
from memline.shared.words import counted


@command("memline agent ls", "memline agent move work --to index-2 --backup /mnt/usb", cls=click.Group)
def agent(invocation: Invocation) -> None:
    """Show which index host of the fleet serves which agent, and move agents between them."""


@asks(CALLS["agent ls"], parent=agent)
def list_agents(invocation: Invocation, as_json: bool) -> None:
    """List the agents of this configuration and of the fleet, with the index host that serves each."""
    found = listed(invocation.settings)
    lines = (
        f"{each['agentId']}  {each['indexHost'] or '(none yet)'}"
        f"{' on its way to ' * bool(each['movingTo'])}{each['movingTo']}"
        f"{'' if each['isConfigured'] else '  (not configured here)'}"
        for each in found
    )
    print_result(found, as_json, lines)


@asks(CALLS["agent move"], parent=agent)
def move(invocation: Invocation, name: str, to: str, backup: str | None, as_json: bool) -> None:
    """Move an agent away from this index host, to it, or undo that."""
    settings, host, folder = invocation.settings, to, Path(backup) if backup else None
    if not settings.queue.url or not settings.queue.host:
        raise ConfigError(
            "agents move between index hosts of a fleet, and this one has no name",
            hint="set queue.url, queue.name and queue.host on each (docs/fleet.md)",
        )
    if not re.fullmatch(HOST_NAME, host):
        raise ConfigError(f"{host[:80]!r} is not a valid name of an index host", hint="memline agent ls")
    chosen = invocation.agent(name)
    again = shlex.join(["memline", "agent", "move", name, "--to", host, "--backup", str(folder or "PATH")])
    note(agent=name, host=settings.queue.host, to=host)
    if host != settings.queue.host:
        if folder is None:
            raise click.UsageError("name a folder for the index: --backup PATH")
        say = once_a_minute()
        saved = moving.leave(settings, chosen, to=host, folder=folder, on_wait=say)
        lines = [
            f"{name} is on its way to {host}: {counted(saved.files, 'file')},"
            f" {counted(saved.vectors, 'vector')} in {saved.path}",
            f"Copy {saved.path} and the notes, {chosen.workspace}, to {host}, configure the agent there with"
            " the same provider, and run there:",
            f"    {again}",
            f"Until then nothing answers for it. To undo this here: memline agent move {name} --to"
            f" {settings.queue.host}",
        ]
        print_result({**saved.to_json(), "indexHost": settings.queue.host, "movingTo": host}, as_json, lines)
        return
    if folder is None:
        is_undone = moving.stay(settings, chosen)
        words = f"{name} stays on {host}." if is_undone else f"{name} is served by {host}; nothing to undo."
        print_result({"agentId": name, "indexHost": host, "movingTo": ""}, as_json, [words])
        return
    arrived = moving.arrive(settings, chosen, folder)
    words = f"{name} is served by {host}" + ("." if arrived else " already.")
    if arrived:
        words += f" {counted(arrived.files, 'file')}, {counted(arrived.vectors, 'vector')}."
        words += " Take it out of the old host's configuration."
    counts = arrived.to_json() if arrived else {"agentId": name}
    print_result({**counts, "indexHost": host, "movingTo": ""}, as_json, [words])
    if not as_json:
        echo("Try: memline index", err=True)
