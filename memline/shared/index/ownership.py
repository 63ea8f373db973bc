"""Keep one index a workspace: record which one it is of, and refuse it for another."""

from __future__ import annotations

from sqlite3 import Connection

from memline.shared.config import environment
from memline.shared.config.agents import WORKSPACE_OPTION, is_same
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexOfAnother
from memline.shared.index import driver, meta


def refuse(settings: AgentSettings, recorded: str) -> None:
    """Raise IndexOfAnother when the command line names another workspace than that of the agent's index.

    `recorded` is that workspace. The index follows the workspace that is configured for the agent.
    """
    is_configured = settings.workspace_origin not in (WORKSPACE_OPTION, environment.WORKSPACE)
    if recorded and not is_configured and not is_same(recorded, settings.workspace):
        raise IndexOfAnother(
            f"the index {settings.index_path} is of another workspace, {recorded};"
            f" nothing of it is used for {settings.workspace}",
            hint="give each workspace a store.path of its own",
        )


def record(connection: Connection, settings: AgentSettings) -> None:
    """Write down in the index which workspace it is of. Raises IndexOfAnother."""
    recorded = str(meta.get(connection, meta.WORKSPACE, "") or "")
    refuse(settings, recorded)
    if recorded != str(settings.workspace):
        with driver.transaction(connection):
            meta.put(connection, meta.WORKSPACE, str(settings.workspace))
