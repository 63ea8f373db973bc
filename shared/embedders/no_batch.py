"""The Batch API of a provider that this process's settings do not lead to: every call says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

from shared.embedders.batch import BatchCaps, BatchLook, BatchResult, BatchRow
from shared.embedders.protocol import Identity
from shared.errors import ProviderStop


class NoBatchApi:
    """Stands in for a `BatchApi`, so that batches nobody can reach wait as those with other trouble do."""

    def __init__(self, identity: Identity, error: ProviderStop) -> None:
        self._identity = identity
        self._error = error

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def caps(self) -> BatchCaps:
        return BatchCaps(max_rows=0, max_bytes=0)

    def row_bytes(self, row: BatchRow) -> int:
        return len(row.text)

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        self._refuse()

    def find_upload(self, tag: str) -> str | None:
        self._refuse()

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchLook:
        self._refuse()

    def find(self, tag: str) -> BatchLook | None:
        self._refuse()

    def look(self, batch_id: str) -> BatchLook:
        self._refuse()

    def results(self, look: BatchLook) -> Iterator[BatchResult]:
        self._refuse()

    def cancel(self, batch_id: str) -> BatchLook:
        self._refuse()

    def clean_up(self, look: BatchLook | None, *, file_id: str) -> None:
        self._refuse()

    def close(self) -> None:
        """Nothing is open."""

    def _refuse(self) -> NoReturn:
        raise ProviderStop(self._error.message, hint=self._error.hint)
