"""Which names are those of session transcripts, and so which source a ledger path belongs to.

    <session>.jsonl                                            the transcript of a session
    <session>.jsonl.reset.<time>, <session>.jsonl.deleted.<time>    its archives
    everything else beside them                                no transcript: locks, backups, checkpoints …

The ledger path of a transcript is `sessions/<name>`. No note can have it: none has a name that ends like one.
"""

from __future__ import annotations

#: The two sources.
MEMORY, SESSIONS = "memory", "sessions"

#: What the ledger paths of transcripts begin with.
PREFIX = "sessions/"

_ENDING = ".jsonl"
_ARCHIVES = (".jsonl.reset.", ".jsonl.deleted.")

#: Files beside a transcript that end like one: what other programs keep of the session.
_SIDE_FILES = (".trajectory", ".acp-stream", ".bak", ".backup", ".tmp", ".lock", ".old", ".orig")

#: Snapshots of a session that is still there.
_CHECKPOINT = ".checkpoint."

#: An archive that was put away once more, or is no archive.
_LATER = (".bak", ".tmp", ".lock", ".part", ".gz", ".zst", "~", ".md", ".markdown")


def is_transcript_name(name: str) -> bool:
    """Whether a file of this name in a sessions folder is a transcript or the archive of one."""
    if name.endswith(_ENDING):
        session = name.removesuffix(_ENDING)
    else:
        for mark in _ARCHIVES:
            session, _, when = name.partition(mark)
            if when and not any(f"{later}." in f"{when}." for later in _LATER):
                break
        else:
            return False
    return (
        bool(session)
        and not session.startswith(".")
        and not session.endswith(_SIDE_FILES)
        and _CHECKPOINT not in session
        and not any(mark in session for mark in _ARCHIVES)
    )


def is_transcript(path: str) -> bool:
    """Whether a ledger path is that of a transcript."""
    name = path.removeprefix(PREFIX)
    return name != path and "/" not in name and is_transcript_name(name)


def is_archive(path: str) -> bool:
    """Whether the path of a transcript is that of an archive: its session is over."""
    return not path.endswith(_ENDING)


def source_of(path: str) -> str:
    """The source that a ledger path belongs to."""
    return SESSIONS if is_transcript(path) else MEMORY
