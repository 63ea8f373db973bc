"""Memline: memory search for AI agents. Everything an install puts on the import path is below this name.

    from memline import Memory

    with Memory("~/notes") as memory:
        for hit in memory.search("why did we choose redis").hits:
            print(hit.citation, hit.snippet)

At the top level of a checkout `shared`, `producers` and `workers` are links to the folders in this one.
"""

from importlib import import_module

#: Where the public names are; loaded at first use, so that `import memline` costs nothing.
_HOMES = {
    "Memory": "memline.producers.memory",
    "MemlineError": "memline.shared.errors",
    "Answer": "memline.shared.search.results",
    "Hit": "memline.shared.search.results",
    "Excerpt": "memline.shared.sources.reading",
    "Entry": "memline.producers.backends",
    "IndexReport": "memline.producers.backends",
    "DeadLink": "memline.producers.backends",
    "Chat": "memline.producers.chats",
    "chat_of": "memline.producers.chats",
}

__all__ = [
    *("Answer", "Chat", "DeadLink", "Entry", "Excerpt", "Hit", "IndexReport", "MemlineError", "Memory"),
    "chat_of",
]


def __getattr__(name: str) -> object:
    """Load a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'memline' has no attribute {name!r}")

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
