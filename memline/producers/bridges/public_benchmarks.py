"""Turn the files of public benchmarks, LoCoMo and LongMemEval, into notes and questions with their evidence.

Which session holds an answer is written beside the notes alone: file names are numbers, and of a turn only
who speaks and what is said is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.errors import MemlineError
from memline.shared.values import value

#: The questions, in the folder that is written; the other folders in it are the workspaces.
QUESTIONS = "questions.jsonl"

#: LoCoMo's categories by their numbers.
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}

_SESSION = re.compile(r"session_(\d+)")
#: `D3:11` is the eleventh turn of the third session. Of a text that names several the first counts, as in the
#: benchmark of basic-memory.
_TURN = re.compile(r"D(\d+):")


class _Turn(msgspec.Struct):
    speaker: str
    dia_id: str = ""
    text: str = ""


class _Answered(msgspec.Struct):
    question: str
    category: int = 0
    evidence: list[Any] = []


class _Talk(msgspec.Struct):
    conversation: dict[str, Any]
    qa: list[_Answered]


class _Said(msgspec.Struct):
    role: str
    content: str


class _Asked(msgspec.Struct):
    question_id: str
    question: str
    haystack_session_ids: list[str]
    haystack_dates: list[str]
    haystack_sessions: list[list[_Said]]
    answer_session_ids: list[str]
    question_type: str = ""
    question_date: str = ""


@value
class Imported:
    """What was written."""

    workspaces: int
    notes: int
    questions: int


@value
class _Note:
    #: Workspace and file name.
    place: tuple[str, str]
    text: str


#: A note, or a question as it is written.
_Parts = Iterator[_Note | dict[str, Any]]


def locomo(content: bytes) -> _Parts:
    """Yield all conversations of LoCoMo as one workspace, a note a session, and the questions.

    As basic-memory's benchmark has it: what was said, without days and pictures.
    """
    for number, talk in enumerate(msgspec.json.decode(content, type=list[_Talk])):
        #: Session -> name of its note, and number of each turn's line.
        notes: dict[int, tuple[str, dict[str, int]]] = {}
        for key in talk.conversation:
            match = _SESSION.fullmatch(key)
            if match and isinstance(talk.conversation[key], list):
                name = f"c{number:02}-s{int(match[1]):02}"
                lines = ["---", f"title: {name}", "---", "", f"# {name}", "", "## Conversation"]
                places: dict[str, int] = {}
                for turn in msgspec.convert(talk.conversation[key], list[_Turn]):
                    if turn.text.strip():
                        lines.append(_line(turn.speaker, turn.text))
                        places[turn.dia_id] = len(lines)
                notes[int(match[1])] = f"{name}.md", places
                yield _Note(place=("locomo", f"{name}.md"), text="\n".join(lines) + "\n")
        for at, each in enumerate(talk.qa):
            found = {name: _TURN.match(name) for name in map(str, each.evidence)}
            evidence = [
                [{"path": notes[int(match[1])][0], "line": notes[int(match[1])][1].get(name)}]
                for name, match in found.items()
                if match and int(match[1]) in notes
            ]
            category = _CATEGORIES.get(each.category, str(each.category))
            yield _question(f"c{number:02}-q{at:04}", each.question, "locomo", category, evidence)


def longmemeval(content: bytes) -> _Parts:
    """Yield the haystack of each question of LongMemEval as a workspace, a note a session, and the question.

    Questions without an answer (`…_abs`) are left out, as its authors leave them out of retrieval. A session
    that a haystack has twice stands once.
    """
    asked = [
        each
        for each in msgspec.json.decode(content, type=list[_Asked])
        if not each.question_id.endswith("_abs")
    ]
    for number, each in enumerate(asked):
        workspace = f"q{number:03}"
        notes: dict[str, str] = {}
        sessions = zip(each.haystack_session_ids, each.haystack_dates, each.haystack_sessions, strict=True)
        for at, (session, date, turns) in enumerate(sessions):
            if session in notes:
                continue
            notes[session] = f"s{at:03}.md"
            day = _day(date)
            lines = ["---", f"title: s{at:03}", *[f"date: {day}"] * bool(day), "---", ""]
            lines += [f"# Chat session on {date}", ""]
            lines += [_line(turn.role.capitalize(), turn.content) for turn in turns if turn.content.strip()]
            yield _Note(place=(workspace, notes[session]), text="\n".join(lines) + "\n")
        evidence = [
            [{"path": notes[session], "line": None}] for session in dict.fromkeys(each.answer_session_ids)
        ]
        asked_on = {"today": day} if (day := _day(each.question_date)) else {}
        yield _question(each.question_id, each.question, workspace, each.question_type, evidence) | asked_on


#: Reads the file of each benchmark.
FORMATS: dict[str, Callable[[bytes], _Parts]] = {"locomo": locomo, "longmemeval": longmemeval}


def import_benchmark(name: str, file: Path, out: Path) -> Imported:
    """Write the notes and questions of a published file into an empty folder.

    Raises MemlineError for a file of another shape, of which nothing is written, and for a folder in use.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MemlineError(f"{out} is not an empty folder", hint="name a new folder")
    try:
        parts = [*FORMATS[name](file.read_bytes())]
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MemlineError(
            f"{file} is not a file of {name}: {reason}", hint="give the JSON file as its authors publish it"
        ) from error
    except OSError as error:
        raise MemlineError(f"{file} cannot be read: {error.strerror}", hint="check the path") from error
    notes = [each for each in parts if isinstance(each, _Note)]
    questions = [json.dumps(each, ensure_ascii=False) for each in parts if isinstance(each, dict)]
    workspaces = {note.place[0] for note in notes}
    for workspace in workspaces:
        (out / workspace).mkdir(parents=True)
    for note in notes:
        out.joinpath(*note.place).write_text(note.text, encoding="utf-8")
    out.mkdir(exist_ok=True)
    (out / QUESTIONS).write_text("".join(f"{line}\n" for line in questions), encoding="utf-8")
    return Imported(workspaces=len(workspaces), notes=len(notes), questions=len(questions))


def _line(speaker: str, text: str) -> str:
    """Write a turn on a line of its own."""
    return f"- **{speaker}:** {' '.join(text.split())}"


def _day(text: str) -> str:
    """Return the ISO day of `2023/05/20 (Sat) 02:21`; empty for what is not one."""
    match = re.match(r"(\d{4})/(\d{2})/(\d{2})", text)
    return "-".join(match.groups()) if match else ""


def _question(
    row_id: str, query: str, workspace: str, category: str, evidence: list[list[dict[str, Any]]]
) -> dict[str, Any]:
    return {
        "query_id": row_id,
        "query": query.strip(),
        "workspace": workspace,
        "category": category,
        "evidence": evidence,
    }
