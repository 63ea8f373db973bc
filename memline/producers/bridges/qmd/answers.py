"""Read what qmd answers: JSON of its results, and from each the file and the lines it is about."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

from memline.producers.bridges.qmd.collections import Collections
from memline.producers.bridges.qmd.home import QmdFailed
from memline.shared.index.driver import library
from memline.shared.programs import Ran
from memline.shared.search.request import SearchRequest, path_filter
from memline.shared.search.results import Hit
from memline.shared.sources.dates import day_of_path, day_of_time
from memline.shared.sources.paths import SESSIONS, is_private
from memline.shared.tables import as_text
from memline.shared.values import value

#: What qmd says instead of JSON; newer versions add why.
_NOTHING = re.compile(r"^[\W_]*no results found\b[^\n{\[]*$", re.IGNORECASE | re.MULTILINE)

#: The first line of a snippet: where in the file it begins, and how many lines it has.
_HEADER = re.compile(r"@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*(?:\n|$)")

#: Places at which an array is looked for in a noisy output.
_PLACES_TRIED = 200

#: Milliseconds to wait for qmd, which writes its index and is asked again later.
_BUSY_MS = 1

#: Characters that an error quotes.
_QUOTED_CHARS = 120


@value
class Found:
    """One result of qmd, as it says it."""

    score: float
    #: `qmd://<collection>/<path>`; empty when it names none.
    file: str
    #: The first characters of the document's hash.
    docid: str
    text: str


def read(ran: Ran, mode: str) -> list[Found]:
    """Return the results in an output. Raises QmdFailed when it is not an answer."""
    text = ran.stdout.strip()
    if not text:
        if _NOTHING.search(ran.stderr.strip()):
            return []
        said = " ".join(ran.stderr.split())[:_QUOTED_CHARS]
        raise _invalid(mode, f"stdout empty{f' (stderr: {said})' if said else ''}")
    rows = _array(text)
    if rows is None:
        if _NOTHING.search(text):
            return []
        raise _invalid(mode, f"no array of results in {' '.join(text.split())[:_QUOTED_CHARS]!r}")
    return [found for found in map(_found, rows) if found is not None]


def _invalid(mode: str, why: str) -> QmdFailed:
    return QmdFailed(f"qmd {mode} returned invalid JSON: {why}")


def _array(text: str) -> list[dict[str, Any]] | None:
    """Return the first array of objects in a text, whatever is around it; None for none."""
    decoder = json.JSONDecoder(strict=False)
    place = text.find("[")
    for _ in range(_PLACES_TRIED):
        if place < 0:
            return None
        try:
            content, _ = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, list) and all(isinstance(each, dict) for each in content):
            return content
        place = text.find("[", place + 1)
    return None


def _found(row: dict[str, Any]) -> Found | None:
    """Return a result; None for one whose score is not a number, or that says neither file nor document."""
    score, file, docid = row.get("score"), row.get("file"), row.get("docid")
    body = row.get("snippet") or row.get("body") or ""
    is_number = isinstance(score, int | float) and not isinstance(score, bool) and abs(score) < 1e9
    if not is_number or not math.isfinite(score or 0) or not isinstance(body, str):
        return None
    file, docid = as_text(file), as_text(docid).strip().removeprefix("#")
    if not file and not re.fullmatch(r"[0-9a-fA-F]{4,64}", docid):
        return None
    return Found(score=float(score or 0), file=file, docid=docid, text=body)


class Reader:
    """Makes hits of results: those of the memory alone, that the request asks for."""

    def __init__(
        self,
        collections: Collections,
        index_path: Path,
        *,
        max_chars: int,
    ) -> None:
        self._collections = collections
        self._index_path = index_path
        self._max_chars = max_chars

    def hits(
        self, results: list[Found], request: SearchRequest, bounds: tuple[date, date], mode: str
    ) -> Iterator[Hit]:
        """Yield the hits in their order, each file and lines once. Raises QmdFailed."""
        seen = set[tuple[str, int]]()
        is_meant = path_filter(request)
        for result in results:
            # The same text in two files is one document: the file that is named is the one.
            located = self._by_file(result.file) or self._by_docid(result)
            if located is None or result.score < (request.min_score or 0.0):
                continue
            collection, absolute = located
            path = self._collections.shown(collection, absolute)
            ledger = self._collections.paths.ledger_path(absolute)
            day = day_of_path(path) or day_of_time(_changed_at(absolute))
            first, last, text = self._lines(result.text)
            if (
                not text.strip()
                or (path, first) in seen
                or request.source not in ("", collection.source)
                or (not request.private and (is_private(ledger) or collection.source == SESSIONS))
                or not is_meant(path)
                or not bounds[0] <= day <= bounds[1]
            ):
                continue
            seen.add((path, first))
            yield Hit(
                path=path,
                start_line=first,
                end_line=last,
                score=result.score,
                vector_score=result.score if mode == "vsearch" else 0.0,
                text_score=result.score if mode == "search" else 0.0,
                snippet=text,
                source=collection.source,
                explanation={"qmd": mode, "file": result.file, "docid": result.docid}
                if request.explain
                else None,
            )

    def _by_file(self, file: str) -> Any:
        name, _, relative = file.removeprefix("qmd://").lstrip("/").partition("/")
        return self._collections.found(name, relative) if name and relative else None

    def _by_docid(self, result: Found) -> Any:
        if result.file or not result.docid:
            return None
        try:
            document = _document(self._index_path, result.docid)
        except OSError as error:
            raise QmdFailed(f"qmd index busy while reading results: {error}") from None
        return self._collections.found(*document) if document else None

    def _lines(self, text: str) -> tuple[int, int, str]:
        """Return first line, last line and words of a snippet, cut to its length."""
        header = _HEADER.match(text)
        body = text[header.end() :] if header else text
        first = max(1, int(header[1])) if header else 1
        count = int(header[2]) if header else body.count("\n") + 1
        shown = body[: self._max_chars].rstrip("\n")
        if len(body) > self._max_chars:
            count = min(count, shown.count("\n") + 1)
        return first, first + max(1, count) - 1, shown


def _document(index: Path, docid: str) -> tuple[str, str] | None:
    """Return collection and path of the first active document whose hash begins so; None for none.

    Raises OSError when the index cannot be read now.
    """
    sqlite = library()
    try:
        with closing(sqlite.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            row = connection.execute(
                "SELECT collection, path FROM documents WHERE hash LIKE ? || '%' AND active = 1 LIMIT 1",
                (docid,),
            ).fetchone()
    except sqlite.Error as error:
        raise OSError(str(error)) from error
    return (str(row[0]), str(row[1])) if row else None


def _changed_at(absolute: str) -> float:
    """Return when a file was changed, in seconds since the epoch; 0 for one that is gone."""
    try:
        return Path(absolute).stat().st_mtime
    except OSError:
        return 0.0
