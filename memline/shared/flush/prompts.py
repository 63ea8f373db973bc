"""Write the prompts of a flush, and read the model's answer."""

from __future__ import annotations

import re
import tomllib
from datetime import datetime
from pathlib import Path

#: The word for "there is nothing to keep"; the original's, so that prompts written for it work here.
NO_REPLY = "NO_REPLY"

#: The prompts of our own, in `prompts.toml` beside this module.
_OWN = tomllib.loads((Path(__file__).parent / "prompts.toml").read_text("utf-8"))

_FENCED = re.compile(r"```(?:markdown|md)?[ \t]*\n(.*?)\n?```", re.DOTALL)

#: Thoughts of a model, which servers without a field for them leave in the answer, some without their start.
_THOUGHT = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_THINKING = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)

#: At the beginning of the answer, whatever marks are around it, or as JSON, `{"action": "NO_REPLY"}`; and as
#: all of it, in other spellings.
_SILENT = re.compile(rf'\W*(?:"\w+"\s*:\s*")?{NO_REPLY}(?![A-Z0-9_])|\W*no[ _-]?reply\W*\Z', re.IGNORECASE)
_SILENT_END = re.compile(rf"(?<!\w){NO_REPLY}\W*\Z", re.IGNORECASE)

#: Marks in front of a final NO_REPLY. Stripped afterwards: as the beginning of a pattern that is searched for
#: they took time in the square of their number, 55 s for 60,000 quotes.
_MARKS = " \t\r\n\f\v\u00a0\u3000*_`\"'[({-"

#: A note that begins with a rule begins with front matter.
_RULES = re.compile(r"\A(?:\s*(?:-{3,}|\+{3,})[ \t]*(?:\n|\Z))+")

_TAG = re.compile(r"<(/?)conversation>", re.IGNORECASE)


def system_prompt(configured: str, now: datetime) -> str:
    """Make the system prompt; it names NO_REPLY, or the model could not answer with it."""
    return _complete(configured or _OWN["system"], now)


def request(configured: str, now: datetime) -> str:
    """Make the request after the conversation, with today's date and the time."""
    text = _complete(configured or _OWN["request"], now)
    return f"{text}\n\nCurrent time: {now:%A, %Y-%m-%d %H:%M %Z}".rstrip()


def conversation(lines: list[str], *, is_cut: bool) -> str:
    """Wrap the turns of a conversation for the model; no text in it can close the wrapper."""
    head = "[earlier turns are left out]\n" if is_cut else ""
    body = "\n".join(_TAG.sub(r"[\1conversation]", line) for line in lines)
    return f"<conversation>\n{head}{body}\n</conversation>"


def without_thoughts(answer: str) -> str | None:
    """Drop the model's thoughts before its answer; None when it ends while the model is still thinking."""
    text, thoughts = _THOUGHT.subn("", answer)
    return None if not thoughts and _THINKING.match(answer) else text.strip()


def entry(answer: str) -> str:
    """Return the part of an answer that is kept; empty when there is nothing to keep."""
    text = answer.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1].strip()
    if _SILENT.match(text):
        return ""
    # Some models add it to a full answer.
    if end := _SILENT_END.search(text):
        text = text[: end.start()].rstrip(_MARKS)
    return _RULES.sub("", text).strip("\n").rstrip()


def _complete(text: str, now: datetime) -> str:
    with_hint = text if NO_REPLY in text else f"{text}\n\n{_OWN['hint']}"
    return with_hint.replace("YYYY-MM-DD", f"{now:%Y-%m-%d}")
