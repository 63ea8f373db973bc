"""Prepare a run: open or make the index, put its provider on trial, and plan what is to be read.

A damaged index is made ready for another run here, too.
"""

from __future__ import annotations

from contextlib import closing

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose, choose_fallback
from memline.shared.errors import IndexCorrupt
from memline.shared.index.driver import transaction
from memline.shared.index.maintenance import move_aside
from memline.shared.index_writer import IndexWriter, rescue
from memline.shared.scheduling import jobs, model_change
from memline.shared.sync.plan import Plan, make_plan


def prepare(
    settings: AgentSettings,
    *,
    re_embed: bool = False,
    is_asked: bool = True,
    accept_removals: bool = False,
    clock: Clock | None = None,
) -> Plan:
    """Open (or make) the index, set its provider, and plan the run.

    `is_asked`: a user waits for it, so a provider that stopped is tried again at once. `accept_removals`:
    the files of a root that was emptied are removed.

    Raises an IndexFault when the index cannot be used.
    """
    choice = choose(settings)
    with closing(IndexWriter.of(settings, clock=clock)) as writer, writer.session() as (connection, now):
        if is_asked:
            model_change.switch_back(writer.accounts, choice, now)
        else:
            second = choose_fallback(settings, choice)
            model_change.start(writer.accounts, choice, second, now)
        writer.retry_all()
        if is_asked:
            with transaction(connection):
                jobs.take_up(connection)
        if re_embed:
            model_change.forget_vectors(connection, now)
        return make_plan(settings, choice, connection, accepts_removals=accept_removals)


def build_again(
    settings: AgentSettings, error: IndexCorrupt, before: tuple[int, int] | None, now: float
) -> str:
    """Move a damaged index aside, take over what can be read of it, and say so.

    `before`: the `file_id` of the file that was damaged; another process may have put a new one in its place.
    """
    aside = move_aside(settings.index_path, now, before)
    if aside:
        rescue(settings, aside)
    then = f"it was moved to {aside}" if aside else "it was replaced"
    return f"{error.message}; {then}, and the index is built again from the files."
