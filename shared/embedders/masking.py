"""What a provider wrote, fit to be shown: on one line, short, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Longest piece of a provider's own words in one of our messages.
MAX_SHOWN_CHARS = 300

MASK = "***"

#: Shorter secrets are left: replacing every "key" or "1" would only garble the message.
MIN_SECRET_CHARS = 4

#: Keys as providers write them, also half masked as in "Incorrect API key provided: sk-ab***yz".
_KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|pa|gsk|hf|jina|key)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{10,}|\bAQ\.[\w-]{10,}"
    r"|(?i:\b(?:bearer|basic)\s+)[\w.~+/=*-]{6,}"
    r"|(?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key=)|(?<=token=))[^&\s\"']+"
)


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without `secrets` and without anything that has the shape of a key."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    return _KEY_SHAPES.sub(MASK, text)


def shown(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` masked, on one line, and then cut: a secret at the cut does not survive in part."""
    line = " ".join(mask(text, secrets).split())
    return line if len(line) <= MAX_SHOWN_CHARS else line[:MAX_SHOWN_CHARS].rstrip() + "…"
