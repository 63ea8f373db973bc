"""When a session is flushed: how large it may become in the window of its model."""

from __future__ import annotations

from shared.config.schema import Sessions

#: However large the reserve is meant to be, so much of a window stays for the conversation: 8,000 tokens, of
#: a small window half. The original has the same limits; without them a reserve of 20,000 tokens is more than
#: a window of 16,384 has, and its session was never flushed.
LEAST_PROMPT_TOKENS = 8_000


def flush_at(window_tokens: int, *, reserve_tokens: int, soft_tokens: int) -> int:
    """Tokens of a session at which it is flushed; 0: never.

    `window - reserve - soft`, where the reserve leaves `LEAST_PROMPT_TOKENS` or half of a small window, and
    the soft threshold takes at most half of what the reserve left.
    """
    if window_tokens < 2:
        return 0
    least_prompt = min(LEAST_PROMPT_TOKENS, window_tokens // 2)
    room = window_tokens - min(reserve_tokens, window_tokens - least_prompt)
    return room - min(soft_tokens, room // 2)


def window_of(sessions: Sessions, *, model: str, told: int) -> int:
    """The window of a session's model in tokens: what the configuration says of the model (`provider/model`
    or its bare id), else what the session's own entry says (`told`, 0: nothing), else the default."""
    return known_window(sessions, model) or told or sessions.context_tokens


def known_window(sessions: Sessions, model: str) -> int:
    """What the configuration says of a model; 0: nothing."""
    windows = sessions.context_windows
    return windows.get(model) or windows.get(model.partition("/")[2], 0)
