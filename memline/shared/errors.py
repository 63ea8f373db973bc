"""Define the errors that Memline raises on purpose; some modules have kinds of their own below these.

Foreign exceptions are translated into these where they enter, by one owner for each library.
"""

from __future__ import annotations


class MemlineError(Exception):
    """Says what happened, and in `hint` what to do next: the base of all errors that a user sees."""

    #: Exit status of the command line when this error ends a command.
    exit_code = 1

    #: The code of the finding that it is; see `memline.shared.finding`.
    code = "failed"

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        #: The next command or step for the user; empty when there is none.
        self.hint = hint


class ConfigError(MemlineError):
    """A configuration file, environment variable or option cannot be used as it is."""

    code = "settings_unusable"

    exit_code = 2


def not_utf_8(name: str) -> MemlineError:
    """Make the error that refuses a name with bytes that are not UTF-8, or with half of a character."""
    shown = ascii(name.strip()[:200]).replace("\\udc", "\\x").strip("'")
    return MemlineError(f"not a name in UTF-8: {shown}", hint="rename it, or type it in UTF-8")


class NoWorkspace(ConfigError):
    """No option, variable, file or folder says which notes are meant."""


class JobUnknown(MemlineError):
    """No job, or more than one, has the id that was given."""


class BadRequest(MemlineError):
    """A call has a parameter that is unknown, missing, or holds a value that is not allowed."""

    exit_code = 2


class UnknownAgent(BadRequest):
    """A call names an agent that is not served here; the hint names those that are."""


class AccessDenied(MemlineError):
    """The caller may not see this memory, or may not write to it."""

    code = "chat_refused"


class PathNotAllowed(MemlineError):
    """The path is not an allowed Markdown memory file; the words are the same whether it exists or not."""


class IndexFault(MemlineError):
    """The SQLite index of an agent cannot be used."""

    code = "index_unusable"


class IndexCorrupt(IndexFault):
    """The index file is damaged; it is derived data and can be rebuilt from the notes."""


class IndexTooOld(IndexCorrupt):
    """The index has the schema of an older release; it can be built again from the notes."""


class IndexMissing(IndexFault):
    """There is no index file yet."""

    code = "first_index_missing"


class IndexUnwritable(IndexFault):
    """The index cannot be written: full disk, read-only folder or missing permission."""

    code = "not_writable"


class ProviderError(MemlineError):
    """An embedding provider gave no usable vectors."""

    code = "provider_fails"

    #: The word for this kind in messages, rows and status.
    kind = "later"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        max_rows: int = 0,
        code: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        #: What is wrong, for programs, as `shared.embedders.provider_errors` lists it; empty: as `kind` says.
        self.code = code
        #: Texts that a request may have, as the answer names its quota of a minute; 0: it names none.
        self.max_rows = max_rows
        #: HTTP status of the answer; None without one.
        self.status = status
        #: Seconds of the answer's `Retry-After`; None without one.
        self.retry_after_s = retry_after_s
        #: The provider may have done the work, and may ask for its price, although no answer came.
        self.maybe_paid = False


class ProviderLater(ProviderError):
    """Rate limit, 5xx, timeout or network: the same request may work later."""


class ProviderTimeout(ProviderLater):
    """The request was sent, and not answered within its time limit: a smaller one may be."""


class ProviderTooBig(ProviderError):
    """The request is above a cap of rows, tokens or bytes; a smaller one may work."""

    kind = "too_big"


class ProviderRefused(ProviderError):
    """The request was refused for its content: some text in it will never work, others may."""

    kind = "refused"


class ProviderStop(ProviderError):
    """Bad key, exhausted quota, unknown model: nothing works until the operator acts (see `hint`)."""

    kind = "stop"


class ProviderBrokenAnswer(ProviderError):
    """The answer does not fit the request: wrong count, wrong dimensions, not finite, not JSON."""

    kind = "broken"


class QueueError(MemlineError):
    """A message cannot be sent, decoded or answered in time."""

    code = "redis_unusable"
