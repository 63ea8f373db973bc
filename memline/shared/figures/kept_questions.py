"""Keep the questions of the last 30 days where `serve.logQuestions` is on: for the page of searches.

Without that key no text of a question is kept anywhere. `forget` deletes those of its agent, all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from memline.shared.index.accounts import AccountFile
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Questions of a home that are kept, and for how long; and the most of each that is.
MOST_QUESTIONS, KEPT_S, MOST_CHARS = 5_000, 30 * 86_400.0, 500


@value
class Asked:
    """A question that was answered."""

    #: Seconds since the epoch.
    at: float
    agent: str
    face: str
    outcome: str
    ms: float
    question: str
    #: Its words that stand nowhere.
    missing: tuple[str, ...] = ()
    #: How often it was asked, where equal ones are one row.
    times: int = 1


@value
class Report:
    """What the kept questions of some agents say."""

    slowest: tuple[Asked, ...]
    #: Those without a hit, the most frequent first.
    without: tuple[Asked, ...]
    #: Words that stand nowhere, and in how many questions.
    missing: tuple[tuple[str, int], ...]


def keep(connection: Connection, asked: Asked) -> None:
    """Keep a question, in the caller's transaction; the oldest go."""
    values = (asked.at, asked.agent, asked.face, asked.outcome, asked.ms)
    texts = (asked.question[:MOST_CHARS], json.dumps(asked.missing))
    connection.execute("INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, *texts))
    connection.execute("DELETE FROM questions WHERE at < ? OR at > ?", (asked.at - KEPT_S, asked.at + 86_400))
    oldest = "SELECT rowid FROM questions ORDER BY rowid DESC LIMIT -1 OFFSET ?"
    connection.execute(f"DELETE FROM questions WHERE rowid IN ({oldest})", (MOST_QUESTIONS,))


def report(file: AccountFile, agents: Sequence[str], since: float, *, most: int = 20) -> Report:
    """Report the kept questions of these agents since a time (epoch). Raises IndexFaults."""
    of = f"agent IN ({', '.join('?' * len(agents))}) AND at >= ?"
    columns = "agent, face, outcome, ms, question"
    slowest = f"SELECT at, {columns}, missing, 1 FROM questions WHERE {of} ORDER BY ms DESC LIMIT ?"
    without = (
        f"SELECT max(at), {columns}, missing, count(*) AS times FROM questions WHERE {of}"
        " AND outcome = 'none' GROUP BY agent, question ORDER BY times DESC, max(at) DESC LIMIT ?"
    )
    words: Counter[str] = Counter()
    with file.reading() as connection:
        if connection is None:
            return Report(slowest=(), without=(), missing=())
        rows = [
            [_asked(row) for row in connection.execute(query, (*agents, since, most))]
            for query in (slowest, without)
        ]
        for (missing,) in connection.execute(f"SELECT missing FROM questions WHERE {of}", (*agents, since)):
            words.update({word.casefold() for word in json.loads(missing)})
    return Report(slowest=tuple(rows[0]), without=tuple(rows[1]), missing=tuple(words.most_common(most)))


def _asked(row: Sequence[object]) -> Asked:
    names = ("at", "agent", "face", "outcome", "ms", "question", "missing", "times")
    fields = dict(zip(names, row, strict=True))
    return Asked(**(fields | {"missing": tuple(json.loads(str(fields["missing"])))}))  # type: ignore[arg-type]
