"""Make passages of ranked chunks: what is cited once instead of twice.

Neighbouring chunks overlap by a fifth, so the best hits of a long note repeat each other: 18 % of hits on
real documentation. Hits that overlap or adjoin become one passage of up to a chunk and a half, and others
get their places. Measured on questions over conversations and notes: nDCG at ten +0.02, recall at six +0.01.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from memline.shared.patterns import late
from memline.shared.search.fusion import Candidate
from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.tokens import weighted_length
from memline.shared.values import field, value

#: Candidates among which passages are made, one after another, and the best that are looked at for what a
#: note and a transcript both say; fixed, so that the first hits are the same however many are asked for. More
#: than 16 measured the same.
WINDOW = 20

#: Share of a neighbour's new lines that must fit into the passage; what does not fit is left out.
MOST_OF = 0.5

#: Share of a transcript's words, in their order, that a note must hold to stand for it.
SAME_WORDS = 0.9

_WORD = late(r"\w+")


@value(frozen=False)
class Passage:
    """Lines of a file that are shown as one hit, and the best of the candidates that they come from."""

    best: Candidate
    start_line: int
    end_line: int
    text: str
    #: Those whose lines were added.
    joined: list[Candidate] = field(default_factory=list)


def once_of_both(ranked: Sequence[Candidate], texts: Mapping[int, str]) -> list[Candidate]:
    """Leave out, of the best candidates, transcripts whose words a note holds: it takes their places.

    `texts` holds the first WINDOW.
    """
    head = list(ranked[:WINDOW])
    notes = [each for each in head if each.source != SESSIONS]
    if not notes or len(notes) == len(head):
        return list(ranked)
    words = {each.chunk_id: _WORD.findall(texts[each.chunk_id].casefold()) for each in head}
    for each in [each for each in head if each.source == SESSIONS]:
        said = words[each.chunk_id]
        twin = next((note for note in notes if _holds(words[note.chunk_id], said)), None)
        if twin is not None:
            twin.stand_for(each)
            head.remove(each)
    return [*sorted(head, key=lambda each: each.order), *ranked[WINDOW:]]


def passages(
    ranked: Sequence[Candidate], texts: Mapping[int, str], *, wanted: int, max_tokens: int
) -> list[Passage]:
    """Make the first `wanted` passages, none above `max_tokens` unless a chunk is; 0 merges nothing."""
    made: list[Passage] = []
    for first in range(0, len(ranked), WINDOW):
        if len(made) >= wanted:
            break
        window: list[Passage] = []
        for each in ranked[first : first + WINDOW]:
            text = texts[each.chunk_id]
            neighbours = (passage for passage in window if passage.best.path == each.path)
            if not any(_join(passage, each, text, max_tokens * 4) for passage in neighbours):
                window.append(
                    Passage(best=each, start_line=each.start_line, end_line=each.end_line, text=text)
                )
        made += window
    return made[:wanted]


def _join(passage: Passage, other: Candidate, text: str, max_weight: int) -> bool:
    """Add the lines of a chunk that the passage has not; False when they are not next to it or do not fit."""
    if other.start_line > passage.end_line + 1 or other.end_line < passage.start_line - 1 or not max_weight:
        return False
    lines, old = text.split("\n"), passage.text.split("\n")
    lengths = other.end_line - other.start_line + 1, passage.end_line - passage.start_line + 1
    if (len(lines), len(old)) != lengths:
        # A piece of a long line, or messages of a transcript: lines of the text are not lines of the file.
        return False
    start = max(other.start_line, passage.start_line)
    both = max(0, min(other.end_line, passage.end_line) + 1 - start)
    mine, theirs = start - passage.start_line, start - other.start_line
    if both and old[mine : mine + both] != lines[theirs : theirs + both]:
        # Pieces of one long line.
        return False
    above = lines[: max(0, passage.start_line - other.start_line)]
    below = lines[max(0, passage.end_line + 1 - other.start_line) :]
    if above and below:
        return False
    # The nearest first.
    new = below or above[::-1]
    fitting = new[: _fitting(new, max_weight - weighted_length(passage.text))]
    if sum(map(len, fitting)) < MOST_OF * sum(map(len, new)):
        return False
    if below:
        passage.end_line += len(fitting)
    else:
        passage.start_line -= len(fitting)
    passage.text = "\n".join([*old, *fitting] if below else [*fitting[::-1], *old])
    passage.joined.append(other)
    return True


def _fitting(lines: Sequence[str], room: int) -> int:
    """Count the first lines that fit into `room`, a character of a dense script counted as four."""
    for number, line in enumerate(lines):
        room -= weighted_length(line) + 1
        if room < 0:
            return number
    return len(lines)


def _holds(note: Sequence[str], transcript: Sequence[str]) -> bool:
    """Tell whether a note has nine tenths of the words of a transcript, in their order."""
    least = SAME_WORDS * len(transcript)
    if not transcript or (Counter(note) & Counter(transcript)).total() < least:
        return False
    # The longest common subsequence, a bit a word of the note (Allison and Dix 1986): a note of one word over
    # and over took difflib seconds; 3,000 words take 2 ms.
    places: dict[str, int] = {}
    for place, word in enumerate(note):
        places[word] = places.get(word, 0) | 1 << place
    ends = 0
    for word in transcript:
        both = ends | places.get(word, 0)
        ends = both & ((both - (ends << 1 | 1)) ^ both)
    return ends.bit_count() >= least
