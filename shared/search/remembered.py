"""Answers that need not be looked up again: agents ask the same twice, and several of them at once.

An answer is good as long as nothing was committed to the index since, and not longer than `GOOD_FOR_S`,
because ages of notes and dates such as `30d` move with the clock. Trouble is never remembered.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from shared.search.results import Answer

#: Answers kept, about 5 KB each; who was not asked for longest goes first.
MAX_ANSWERS = 256

#: Seconds an answer is good for.
GOOD_FOR_S = 60.0


class Remembered:
    """Answers by question and state of the index. Safe to use from several threads."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: Question -> (state of the index, when it was answered, the answer).
        self._answers: OrderedDict[Hashable, tuple[Hashable, float, Answer]] = OrderedDict()

    def get(self, question: Hashable, state: Hashable) -> Answer | None:
        """The answer to this question in this state of the index; None when there is none any more."""
        with self._lock:
            found = self._answers.get(question)
            if found is None:
                return None
            if found[0] != state or self._monotonic() - found[1] > GOOD_FOR_S:
                del self._answers[question]
                return None
            self._answers.move_to_end(question)
            return found[2]

    def put(self, question: Hashable, state: Hashable, answer: Answer) -> None:
        """Keep an answer, unless something was wrong when it was given."""
        if answer.warning:
            return
        with self._lock:
            self._answers[question] = (state, self._monotonic(), answer)
            self._answers.move_to_end(question)
            if len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
