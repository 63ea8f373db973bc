"""Describe the rows, the results and the jobs of a provider's Batch API; `shared.batches.remote` calls it."""

from __future__ import annotations

from typing import Literal

from memline.shared.errors import ProviderError
from memline.shared.values import value

#: The largest job: OpenAI's own caps. Voyage takes twice the rows and Gemini ten times the bytes, but a job
#: is lost, late or looked for as a whole.
MAX_ROWS, MAX_BYTES = 50_000, 200_000_000

#: What a job is doing, in our words; all but `running` are final.
State = Literal["running", "done", "failed", "expired", "cancelled"]


@value
class BatchRow:
    """One text of a job."""

    #: Its text hash in hex; no two rows of a job have the same.
    key: str
    text: str


@value
class BatchResult:
    """What became of one row: a vector or an error, never both."""

    #: The key of the row as the provider returned it, so perhaps one of another job, or a second time. Empty:
    #: the line does not say it (it was cut off, or is not JSON).
    key: str
    #: Checked, unit length, as everywhere.
    vector: bytes | None = None
    #: `refused`, `too_big`: the text; `later`, `broken`: the row may work when it is asked for again;
    #: `stop`: nothing will work until the operator acts.
    error: ProviderError | None = None


@value
class BatchJob:
    """A job as the provider described it at one moment."""

    id: str
    state: State
    #: The provider's own word for the state.
    provider_state: str
    #: Why it failed, in words fit to be shown; empty when it did not, or the provider gave no reason.
    reason: str = ""
    #: What kind of failure `reason` is, as for any other call: `later` and `stop` say nothing against the
    #: rows, `too_big` asks for smaller jobs, else it is `broken`.
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
