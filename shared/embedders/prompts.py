"""What goes before texts and questions, by the family of a local model: its makers trained it with that.

The family's name is the scheme of an identity, so a change of prompts is another identity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.embedders.gguf import ModelHead
from shared.values import value

_WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@value
class Prompts:
    """The words before a text and before a question."""

    document: str = ""
    query: str = ""


#: By family. MiniLM has none; bge (1.5 and later) works without one and its makers say so.
PROMPTS: Mapping[str, Prompts] = {
    "": Prompts(),
    "embeddinggemma": Prompts(document="title: none | text: ", query="task: search result | query: "),
    "nomic-embed": Prompts(document="search_document: ", query="search_query: "),
    "e5-instruct": Prompts(query=f"{_WEB_SEARCH} "),
    "e5": Prompts(document="passage: ", query="query: "),
    "qwen3-embedding": Prompts(query=_WEB_SEARCH),
    "mxbai": Prompts(query="Represent this sentence for searching relevant passages: "),
}

#: What architecture, own name and file name together contain, the first that fits.
_FAMILIES = (
    ("embeddinggemma", re.compile(r"embedding-?gemma|gemma-embedding")),
    ("nomic-embed", re.compile(r"nomic-(bert|embed)")),
    ("e5-instruct", re.compile(r"\be5-.*(instruct|mistral)")),
    ("e5", re.compile(r"\be5\b")),
    ("qwen3-embedding", re.compile(r"qwen3-embedding")),
    ("mxbai", re.compile(r"\bmxbai\b")),
)


def family(head: ModelHead, file_name: str) -> str:
    """The family of a model; empty for one that takes texts as they are."""
    text = re.sub(r"[\s_.]+", "-", f"{head.architecture} {head.name} {file_name}".lower())
    return next((name for name, pattern in _FAMILIES if pattern.search(text)), "")
