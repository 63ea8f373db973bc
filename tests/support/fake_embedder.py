"""A deterministic embedder without a model: texts that share words and parts of words get similar vectors.

The stub servers answer with it, so a search in a test finds what a real model would find first.
"""

import re
from array import array
from hashlib import blake2b

from memline.shared.embedders.protocol import Identity, unit_vector
from memline.shared.providers import RequestCaps

#: Words whose features are remembered; beyond it the memory starts anew (about 1 kB a word).
MAX_WORDS = 20_000

_DENSE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_DENSE}]+|[^\W_{_DENSE}]+")
_DENSE_RUN = re.compile(rf"[{_DENSE}]")

#: Weight of a whole word beside that of each of its trigrams.
WORD_WEIGHT = 3

#: (dimension, signed weight) of everything a word stands for.
Features = tuple[tuple[int, int], ...]


class FakeEmbedder:
    """Signed hashes of words and character trigrams (of a CJK run: characters and pairs), unit length."""

    def __init__(self, *, dims=384, model="fake", max_rows=256):
        self._identity = Identity(provider="fake", model=model, dims=dims)
        self._caps = RequestCaps(max_rows=max_rows, max_tokens=150_000)
        self._dims = dims
        self._words = {}

    @property
    def identity(self):
        return self._identity

    @property
    def caps(self):
        return self._caps

    def embed_documents(self, texts):
        return [self._embed(text) for text in texts]

    def embed_query(self, text, *, timeout_s):
        return self._embed(text)

    def close(self):
        self._words.clear()

    def _embed(self, text):
        # Each word counts once: a text is about what it names, not about how often it says "the".
        sums = [0] * self._dims
        for word in set(_WORD.findall(text.lower())):
            for dimension, weight in self._words.get(word) or self._learn(word):
                sums[dimension] += weight
        if not any(sums):
            for dimension, weight in self._hashed({repr(text): 1}):
                sums[dimension] += weight
        return unit_vector(array("d", sums), dims=self._dims)

    def _learn(self, word):
        if len(self._words) >= MAX_WORDS:
            self._words.clear()
        features = self._hashed(_parts(word))
        self._words[word] = features
        return features

    def _hashed(self, parts):
        features = []
        for part, weight in parts.items():
            number = int.from_bytes(
                blake2b(part.encode("utf-8", "replace"), digest_size=8).digest(), "little"
            )
            features.append((number // 2 % self._dims, weight if number % 2 else -weight))
        return tuple(features)


def _parts(word):
    """What a word stands for, each with its weight."""
    if _DENSE_RUN.match(word):
        pairs = [word[at : at + 2] for at in range(len(word) - 1)]
        return dict.fromkeys(word, 1) | dict.fromkeys(pairs, 2)
    padded = f"<{word}>"
    trigrams = [padded[at : at + 3] for at in range(len(padded) - 2)]
    return dict.fromkeys(trigrams, 1) | {padded: WORD_WEIGHT}
