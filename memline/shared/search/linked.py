"""Limit a search to the notes that a note links to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memline.shared.errors import BadRequest
from memline.shared.index.links import Resolver, links_of
from memline.shared.sources.paths import is_private

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.search.request import SearchRequest


def among(connection: Connection, request: SearchRequest, files: list[int]) -> list[int]:
    """Return those of the files to which the note links that the request names by path, citation or name.

    Raises BadRequest for a name that no note has, and for that of a private note which the request may not
    see, with the same words.
    """
    resolver, name = Resolver(connection), request.linked_from
    found = (resolver.note(each, is_path=False, of="") for each in (name, name.partition("#")[0]))
    path = next(filter(None, found), "")
    if not path or (is_private(path) and not request.private):
        raise BadRequest(
            f"no note is named {name[:200]!r}", hint="memline search QUERY, and take a path of it"
        )
    notes = resolver.notes(links_of(connection, path), of=path)
    rows = connection.execute(
        "SELECT id FROM files WHERE path IN (SELECT value FROM json_each(?))", (json.dumps(notes),)
    )
    wanted = {file_id for (file_id,) in rows}
    return [each for each in files if each in wanted]
