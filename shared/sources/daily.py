"""The daily log and the long-term note of a workspace: their paths, and what day it is."""

from __future__ import annotations

from datetime import date, datetime

#: Notes that last; the second spelling is the one of older workspaces.
LONG_TERM = ("MEMORY.md", "memory.md")


def local_time(now: float, zone: str = "") -> datetime:
    """The moment as its writer sees it: in the time zone of this IANA name, else in that of the machine."""
    if zone:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return datetime.fromtimestamp(now, ZoneInfo(zone))
        except (ZoneInfoNotFoundError, ValueError):
            # A machine without a time zone database; the configuration was checked on another.
            pass
    return datetime.fromtimestamp(now).astimezone()


def log_path(day: date) -> str:
    """The daily log of a day, relative to the workspace."""
    return f"memory/{day.isoformat()}.md"
