"""What a model is told of its memory: it reads this before it decides to look anything up.

A model that is not told when to search answers from nothing; so each text says when to call, with what, and
what to do with an answer that is empty or comes with a warning.
"""

from __future__ import annotations

#: What a client may put before the model at the start of a conversation.
INSTRUCTIONS = (
    "Memline is the long-term memory of this agent: Markdown notes, and past conversations where that"
    " is set up. Before you answer about earlier work, decisions, dates, people, preferences or"
    " to-dos, call memory_search first; then memory_get for the lines around a hit when the snippet is"
    " not enough. Cite what you use as path#L5-L7. If nothing is found, say that you looked. If an"
    " answer has a warning, tell the user and suggest its action."
)

SEARCH = (
    "Search this agent's memory: notes (MEMORY.md, memory/*.md) and, where enabled, past"
    " conversations. Always do this before you answer about prior work, decisions, dates, people,"
    " preferences or to-dos, and before you say that you do not know. Ask with the words that the note"
    " would use; ids, error codes, file names and dates are found exactly. Returns the best snippets"
    " with path, lines and citation. An empty list comes with a notice or a warning that says why: try"
    " other words, fewer filters, or report the warning."
)

GET = (
    "Read lines of a note that memory_search found: give its path, or its citation path#L5-L7, and"
    " from and lines for more around it. 120 lines unless you say otherwise; when truncated is true,"
    " go on at nextFrom. Only notes of this memory can be read; of past conversations (sessions/…)"
    " the snippet is all there is. status not_found means that there is no such note."
)

STATUS = (
    "Say what this memory holds and whether it is up to date: notes, chunks, how questions are"
    " answered, and what to do when something is wrong. Use it when memory_search reports a warning or"
    " finds nothing at all."
)

APPEND = (
    "Write one entry into memory, to be found later: by default into today's log,"
    " memory/YYYY-MM-DD.md; with target longTerm into MEMORY.md, for facts, decisions and"
    " preferences that will matter in months. Only adds, never changes what is there. One entry a"
    " call, understandable on its own, with names and dates instead of 'he' and 'yesterday'. No"
    " secrets. Returns where the entry stands."
)
