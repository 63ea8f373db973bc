"""Tell which notes a name means, which notes link to each other, and which links lead nowhere.

Links are rows as they are written, and are resolved here by path, name and alias, as `memline get` resolves a
name. So a note that moves keeps its links, and a new one takes up those that were waiting for it.
"""

from __future__ import annotations

import json
from functools import cache
from posixpath import join, normpath
from sqlite3 import Connection

from memline.shared.note_names import MARKDOWN, is_markdown, name_key, path_key, stem_key, without_ending
from memline.shared.sources.about import NoteName, last_part
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sources.paths import MEMORY, is_private

#: Path, line and target of a link, and whether it is a Markdown link.
Place = tuple[str, int, str, bool]


def notes_named(connection: Connection, name: str) -> list[str]:
    """Return the paths of the notes that a name means, sorted, whatever its case, with its ending or without.

    Those with this path, else with this title or alias, this file name, the end of this path, this heading
    at the top: the first of these that some note has.
    """
    return next(filter(None, _by_way(connection, name)), [])


def _by_way(connection: Connection, name: str) -> tuple[list[str], ...]:
    """Return the paths for each way of being named, in the order of `notes_named`."""
    wanted, key = path_key(name.removesuffix("/")), name_key(without_ending(name))
    # Each of these ways shows in the names that are stored: of the path it is its last part.
    rows = connection.execute(
        # CROSS JOIN: the names first, not all files (50 ms at 100,000).
        "SELECT path, files.names, max(key = ?1) FROM names CROSS JOIN files ON files.id = file_id"
        " WHERE key IN (?1, ?2) AND outcome = ?3 AND source = ?4 GROUP BY path ORDER BY path",
        (key, name_key(last_part(name)), INDEXED, MEMORY),
    ).fetchall()
    paths = {path: path_key(path) for path, _, _ in rows}
    whole = {wanted, *(wanted + ending for ending in MARKDOWN)}
    below = tuple(f"/{each}" for each in whole if wanted)
    return (
        [path for path, each in paths.items() if each in whole],
        [path for path, names, _ in rows if key and key in names.split("\n")],
        [path for path in paths if key and stem_key(path) == key],
        [path for path, each in paths.items() if each.endswith(below)],
        [path for path, _, is_named in rows if key and is_named],
    )


class Resolver:
    """Resolves links of one state of an index; the same name is looked up once.

    `private`: False leaves private notes out: who may not read one does not learn its names.
    """

    def __init__(self, connection: Connection, *, private: bool = True) -> None:
        @cache
        def by_way(name: str) -> list[list[str]]:
            ways = _by_way(connection, name)
            return [[path for path in way if private or not is_private(path)] for way in ways]

        self._by_way = by_way

    def note(self, target: str, *, is_path: bool, of: str) -> str:
        """Return the path of the note that a link in the note `of` leads to; empty where there is none."""
        folder = of.rpartition("/")[0]
        bare = target.lstrip("./") if target[:1] in "./" else target
        if is_path or bare != target:
            beside, *_ = self._by_way(normpath(join(folder, target)))
            if beside:
                return beside[0]
        # A path without an ending is a page of a site, and no name.
        ways = 1 if is_path and not is_markdown(target) else None
        notes = next(filter(None, self._by_way(bare)[:ways]), [])
        return min(
            notes, key=lambda path: (path.rpartition("/")[0] != folder, path.count("/"), path), default=""
        )


def linked(
    connection: Connection, path: str, *, private: bool
) -> tuple[tuple[NoteName, ...], tuple[NoteName, ...]]:
    """Return the notes that a note links to, in its order, and those that link to it, by path.

    `private`: False leaves private notes out.
    """
    resolver = Resolver(connection, private=private)
    links = connection.execute(
        "SELECT target, is_path FROM links JOIN files ON files.id = file_id WHERE path = ? ORDER BY ordinal",
        (path,),
    ).fetchall()
    notes = dict.fromkeys(resolver.note(target, is_path=is_path, of=path) for target, is_path in links)
    out = [each for each in notes if each not in ("", path)]
    back = [each for each in _linking_to(connection, resolver, path) if private or not is_private(each)]
    return _with_titles(connection, out), _with_titles(connection, back)


def _with_titles(connection: Connection, paths: list[str]) -> tuple[NoteName, ...]:
    rows = connection.execute(
        "SELECT path, title FROM names JOIN files ON files.id = file_id"
        " WHERE title <> '' AND path IN (SELECT value FROM json_each(?))",
        (json.dumps(paths),),
    )
    titles = dict(rows.fetchall())
    return tuple(NoteName(path=each, title=titles.get(each) or last_part(each)) for each in paths)


def dead(connection: Connection, *, private: bool) -> list[Place]:
    """Return the links that lead to no note.

    `private`: False goes by the other notes alone: nothing tells what a private one is named or links to.
    A path without the ending of Markdown is none of them: a site has other pages.
    """
    resolver = Resolver(connection, private=private)
    rows = connection.execute(
        "SELECT path, line, target, is_path FROM links JOIN files ON files.id = file_id"
        " ORDER BY path, ordinal"
    )
    return [
        (path, line, target, bool(is_path))
        for path, line, target, is_path in rows.fetchall()
        if (private or not is_private(path))
        and (is_markdown(target) or not is_path)
        and not resolver.note(target, is_path=is_path, of=path)
    ]


def _linking_to(connection: Connection, resolver: Resolver, path: str) -> list[str]:
    """Return the paths of the notes that link to this one, sorted."""
    named = "SELECT key FROM names WHERE file_id = (SELECT id FROM files WHERE path = ?)"
    keys = {key.rpartition("/")[2] for (key,) in connection.execute(named, (path,))}
    rows = connection.execute(
        "SELECT DISTINCT path, target, is_path FROM links JOIN files ON files.id = file_id"
        " WHERE key IN (SELECT value FROM json_each(?)) AND path <> ? ORDER BY path",
        (json.dumps([*keys]), path),
    )
    links = ((of, resolver.note(target, is_path=is_path, of=of)) for of, target, is_path in rows)
    return sorted({of for of, note in links if note == path})
