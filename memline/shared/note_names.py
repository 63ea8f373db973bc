"""Tell by a file's name whether it is Markdown, and what the note in it is called."""

from __future__ import annotations

#: Endings of a Markdown file, in any case: `README.MD` is one too.
MARKDOWN = (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd")

#: All Markdown of a folder, in the words of a pattern.
ANY_MARKDOWN = f"**/*.{{{','.join(ending[1:] for ending in MARKDOWN)}}}"

#: Hidden names of editors and systems that end like a note: Emacs' locks, macOS' resource forks.
_LITTER = (".#", "._")


def is_markdown(name: str) -> bool:
    """Tell whether a file of this name is Markdown; of a path only the ending counts."""
    return name.lower().endswith(MARKDOWN) and not name.startswith(_LITTER)


def without_ending(name: str) -> str:
    """Return the name or path of a note without the ending of Markdown, if it has one."""
    lower = name.lower()
    return next((name[: -len(ending)] for ending in MARKDOWN if lower.endswith(ending)), name)
