"""Rerank with a cross-encoder in this process: a model that reads a question and a text together.

It sees what vectors made apart from each other cannot, and costs a pass for every text: nothing is known
before the question is asked. So it is for the best few, and off unless `query.rerank.modelPath` is set.
"""

from __future__ import annotations

import math
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.local.downloads import as_of_reranker, reranker_file
from memline.shared.embedders.local.engines import RERANKING, LoadedModel
from memline.shared.embedders.local.model import shared_model
from memline.shared.errors import ProviderBrokenAnswer, ProviderError


class RankingModel(LoadedModel):
    """A loaded model that says how well a text answers a question."""

    @abstractmethod
    def logit(self, question: str, text: str) -> float:
        """Return the number that the model gives for a pair, any number; what does not fit is cut off."""

    def scores(
        self,
        question: str,
        texts: Sequence[str],
        *,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> list[float]:
        """Score texts, 0 to 1, in their order, until the time is over: then there are fewer, but one.

        Raises ProviderLater when the model is not free in that time.
        """
        question, *texts = (each.encode("utf-8", "replace").decode() for each in (question, *texts))
        end = monotonic() + timeout_s
        made: list[float] = []
        with self._exclusive(timeout_s):
            for text in texts:
                if made and monotonic() >= end:
                    break
                made.append(_sigmoid(self.logit(question, text)))
        return made


class Reranker:
    """Scores texts with the model that an agent's settings name, loaded with the first question.

    Safe to use from several threads: one question at a time is served.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.timeout_s = settings.memory.query.rerank.timeout_seconds
        self._model: RankingModel | None = None

    def close(self) -> None:
        self._model = None

    def load(self) -> RankingModel:
        """Return the model, loaded now if it is not loaded yet. Raises a ProviderError."""
        model = self._model
        if model is None or model.pid != os.getpid():
            file = reranker_file(self._settings)
            try:
                loaded = shared_model(file.path, file.digest, RERANKING)
            except ProviderError as error:
                raise as_of_reranker(error) from None
            assert isinstance(loaded, RankingModel)
            model = self._model = loaded
        return model

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Score texts as `RankingModel.scores`, within the configured time. Raises a ProviderError."""
        return self.load().scores(question, texts, timeout_s=self.timeout_s)


def _sigmoid(logit: float) -> float:
    if math.isnan(logit):
        raise ProviderBrokenAnswer("the local model gave no number for a text")
    # Beyond these limits the result is 0 or 1 in any case.
    return 1.0 / (1.0 + math.exp(-min(max(logit, -60.0), 60.0)))
