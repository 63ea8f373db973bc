"""What a provider's Batch API offers, and the values that pass through it.

    upload ─► create ─► look … look ─► results ─► clean_up
       ╰ find_upload  ╰ find      ╰ cancel

A job is one file of rows that the provider works through when it has time, at half the price. Every call
can fail after it had its effect, so whoever uses this commits a *tag* of its own before the first call: it
is carried by the name of the uploaded file and by the job, and `find_upload` and `find` bring back what a
lost answer left behind. An error of `upload` or `create` says in `maybe_done` whether that can be so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from shared.embedders.protocol import Identity
from shared.errors import ProviderError

#: What a job is doing, in our words; all but `running` are final.
State = Literal["running", "done", "failed", "expired", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One text of a job."""

    #: Its text hash in hex; no two rows of a job have the same.
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of one row: a vector or an error, never both."""

    #: The key of the row as the provider gave it back, so perhaps one of another job, or given twice. Empty:
    #: the line does not say whose it is (it was cut off, or is no JSON).
    key: str
    #: Checked, unit length, as everywhere.
    vector: bytes | None = None
    #: `refused`, `too_big`: the text; `later`, `broken`: the row may work when it is asked for again;
    #: `stop`: nothing will work until somebody acts.
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLook:
    """A job as the provider described it at one moment."""

    id: str
    state: State
    #: The provider's own word for the state.
    said: str
    #: Why it failed, in words fit to be shown; empty when it did not, or nobody said.
    reason: str = ""
    #: What kind of failure `reason` is, as for any other call: `later` and `stop` say nothing against the
    #: rows, `too_big` asks for smaller jobs (`max_tokens`: of all jobs together), else it is `broken`.
    error: ProviderError | None = None
    rows_done: int = 0
    rows_failed: int = 0
    #: Names of the files of good rows and of failed ones; empty when there is none (yet). They may be there
    #: whatever the final state is, and hold the rows that were finished.
    output: str = ""
    errors: str = ""
    #: The uploaded file.
    input_file: str = ""
    #: Ours, when the job carries one.
    tag: str = ""
    #: Seconds since the epoch; 0 when unknown.
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCaps:
    """The largest job a provider takes."""

    max_rows: int
    #: Of the uploaded file; see `BatchApi.row_bytes`.
    max_bytes: int


class BatchApi(Protocol):
    """The Batch API of one provider with one model. Safe to call from several threads.

    Every method but `row_bytes` and `close` raises `shared.errors.ProviderError`: later, stop, broken or
    too_big. Calls that change nothing are tried again a few times before that.
    """

    @property
    def identity(self) -> Identity: ...

    @property
    def caps(self) -> BatchCaps: ...

    def row_bytes(self, row: BatchRow) -> int:
        """Bytes that a row takes in the uploaded file."""
        ...

    def upload(self, rows: Iterable[BatchRow], *, tag: str) -> str:
        """Send the rows as a file whose name carries `tag`; the id of the file.

        The rows are read once and never held together. Raises ProviderTooBig above `caps`, before anything
        is sent.
        """
        ...

    def find_upload(self, tag: str) -> str | None:
        """The id of an uploaded file with this tag; None when there is none. Of several, the newest."""
        ...

    def create(self, file_id: str, *, tag: str, agent: str) -> BatchLook:
        """Start a job over an uploaded file. Sent once: after an error with `maybe_done`, ask `find`.

        Raises ProviderStop, whose hint is to set remote.batch.enabled to false, where there is no such thing.
        """
        ...

    def find(self, tag: str) -> BatchLook | None:
        """The job that carries this tag, looked for in the provider's whole list; None when there is none."""
        ...

    def look(self, batch_id: str) -> BatchLook:
        """The job now."""
        ...

    def results(self, look: BatchLook) -> Iterator[BatchResult]:
        """The rows of a finished job as they arrive, first those of `output`, then those of `errors`.

        A line that cannot be read is a result with an error and does not end the rest. Rows may be missing
        or repeated and come in any order. An error in the middle (the connection is cut) is
        raised; asking again begins anew.
        """
        ...

    def cancel(self, batch_id: str) -> BatchLook:
        """Ask to end a job. It may run on for a while; a job that is final already is left as it is."""
        ...

    def clean_up(self, look: BatchLook | None, *, file_id: str) -> None:
        """Remove the uploaded file and those of the job at the provider. What is gone already is fine.

        All are tried before an error is raised.
        """
        ...

    def close(self) -> None:
        """Free the connections; the object is not used afterwards."""
        ...
