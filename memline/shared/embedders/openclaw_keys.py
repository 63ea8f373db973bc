"""Read the API keys that OpenClaw has saved: its auth profiles, of an agent or of all agents.

    early 2026   <state dir>/agents/<agent>/agent/auth-profiles.json
    2026.9       <state dir>/agents/<agent>/agent/openclaw-agent.sqlite   auth_profile_store
                 <state dir>/state/openclaw.sqlite                        config_machine_state

Each holds `{profiles: {<id>: {type: "api_key", provider, key}}}`. Sign-ins (OAuth) and references to secret
stores are left out. What cannot be read has no keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from memline.shared.sqlite import library, reading_foreign

#: Queries for the JSON of a store, by the place of its database below the state directory.
_STORES = (
    ("agents/{agent}/agent/openclaw-agent.sqlite", "SELECT store_json FROM auth_profile_store"),
    (
        "state/openclaw.sqlite",
        "SELECT value_json FROM config_machine_state WHERE state_key = 'authProfiles.store'",
    ),
)
_FILE = "agents/{agent}/agent/auth-profiles.json"

#: A file of keys has a few kilobytes.
_MAX_BYTES = 1 << 20


def saved_key(state_dir: Path, agent: str, providers: Sequence[str]) -> str:
    """Return the key that is saved for a provider of one of these names; empty when there is none.

    The agent's own profiles come before those of all agents.
    """
    places = [state_dir / each.format(agent=agent) for each in (_FILE, *(place for place, _ in _STORES))]
    stamps = tuple(stamp for place in places for stamp in (_stamp(place), _stamp(Path(f"{place}-wal"))))
    found = _keys(state_dir, agent, stamps)
    return next((key for provider, key in found if provider in providers), "")


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _keys(state_dir: Path, agent: str, _stamps: tuple[tuple[int, int], ...]) -> tuple[tuple[str, str], ...]:
    """List (provider, key); kept until a file changes."""
    return tuple(pair for text in _texts(state_dir, agent) for pair in _profiles(text))


def _texts(state_dir: Path, agent: str) -> Iterator[str]:
    for place, query in _STORES:
        path = state_dir / place.format(agent=agent)
        if path.is_file():
            try:
                with reading_foreign(path) as connection:
                    yield from [text for (text,) in connection.execute(query) if isinstance(text, str)]
            except library().Error:
                # Of a release without such a table, or damaged.
                continue
    try:
        with (state_dir / _FILE.format(agent=agent)).open(encoding="utf-8", errors="replace") as file:
            yield file.read(_MAX_BYTES)
    except OSError:
        return


def _profiles(text: str) -> Iterator[tuple[str, str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return
    profiles = content.get("profiles") if isinstance(content, dict) else None
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        if not isinstance(profile, dict) or profile.get("type") != "api_key":
            continue
        provider, key = profile.get("provider"), profile.get("key")
        if isinstance(provider, str) and isinstance(key, str) and key.strip().isascii() and key.strip():
            yield provider, key.strip()
