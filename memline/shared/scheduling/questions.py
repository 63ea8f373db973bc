"""Embed questions, always under the identity of the vectors they are compared with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from sqlite3 import Connection

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose_for_identity
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Embedder, counted_call
from memline.shared.errors import IndexFault, ProviderLater, ProviderStop, QueueError
from memline.shared.index.accounts import AccountFile, Accounts, account_id
from memline.shared.index.identities import IdentityRow
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import QUESTIONS, Budget, Charge
from memline.shared.scheduling.health import Health
from memline.shared.scheduling.limits import Limits, costs, limit_key, minute_limits
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.words import because

#: Seconds a question waits for its vector; then keyword hits are better than more waiting.
QUERY_TIMEOUT_S = 8.0

#: The cooldown after a failed call, in lengths of that call: a silent provider delays one question in a
#: while, and not every one until its time is over.
COOLDOWN_SHARE = 4


class QueryEmbedder:
    """Embeds questions for one agent; keeps its connection for the next question."""

    def __init__(
        self, settings: AgentSettings, choice: Choice, *, limits: Limits | None = None, clock: Clock
    ) -> None:
        """`limits`: those of a fleet; None for those of the home."""
        self._settings = settings
        self._choice = choice
        self._file = AccountFile(settings.account_path)
        self._limits = limits or Limits(self._file, clock)
        self._budget = Budget.of(self._file, settings)
        self._clock = clock
        self._lock = threading.Lock()
        self._embedders: dict[tuple[str, int], tuple[Choice, Embedder]] = {}
        #: No question is embedded before this time (`Clock.monotonic`), and why.
        self._retry_at = 0.0
        self._cooldown_reason = ""

    def close(self) -> None:
        with self._lock:
            for _, embedder in self._embedders.values():
                embedder.close()
            self._embedders.clear()
        self._file.close()

    def of(self, connection: Connection, active: IdentityRow) -> Callable[[str], bytes]:
        """Return what embeds questions until the index changes; see `shared.search.service.Embedder`."""
        accounts, identity = Accounts(index=connection, file=self._file), active.identity
        read_health = health.reader(accounts, identity.provider, model=identity.model)
        return partial(self.embed, active=active, read_health=read_health)

    def embed(self, text: str, active: IdentityRow, read_health: Callable[[], Health]) -> bytes:
        """Return the vector of `text` under `active`.

        Raises a ProviderError: at once, without a call, while the provider is paused or in its cooldown.
        """
        now, state = self._clock.now(), read_health()
        if state.is_stuck(now):
            raise ProviderStop(state.reason, hint=state.action)
        cooldown_s = self._retry_at - self._clock.monotonic()
        wait_s, why = max((state.wait_s(now), state.reason), (cooldown_s, self._cooldown_reason))
        if wait_s > 0:
            raise _later(active, wait_s, why)
        choice, embedder = self._embedder_of(active)
        has_limits = any(minute_limits(self._settings, choice))
        self._count(choice, active, estimate_tokens(text))
        began = self._clock.monotonic()
        try:
            with counted_call(1 if has_limits else CALL_ATTEMPTS):
                return embedder.embed_query(text, timeout_s=QUERY_TIMEOUT_S)
        except ProviderLater as error:
            now = self._clock.monotonic()
            self._retry_at = now + (error.retry_after_s or COOLDOWN_SHARE * (now - began))
            self._cooldown_reason = error.message
            raise

    def _count(self, choice: Choice, active: IdentityRow, tokens: int) -> None:
        """Count a question within the limits of a minute and of the day; it waits for no place.

        Raises ProviderLater in a cooldown of the account, and at the limit of the day. Where nothing can be
        written now, one question more is better than no answer, but not above such a limit.
        """
        account = account_id(choice.provider, choice.mark)
        max_requests, max_tokens = minute_limits(self._settings, choice)
        moves = costs(tokens=tokens, max_requests=max_requests, max_tokens=max_tokens)
        charge = Charge(identity=active.identity, account=account, mode=QUESTIONS)
        wait_s = 0.0
        with suppress(IndexFault, QueueError):
            wait_s = self._limits.take(limit_key(account, active.identity.model), moves, is_question=True)
        if wait_s > 0:
            raise _later(active, wait_s, "it refused a request, or failed")
        try:
            refusal = self._budget.take(charge, tokens, self._clock.now())
        except IndexFault as error:
            if not self._budget.has_limits:
                return
            words = f"the question cannot be counted: {error.message}"
            raise ProviderLater(words, hint=error.hint) from error
        if refusal:
            raise ProviderLater(refusal.what, hint=refusal.action)

    def _embedder_of(self, active: IdentityRow) -> tuple[Choice, Embedder]:
        key = (active.identity.key, active.vector_dims)
        with self._lock:
            if key not in self._embedders:
                choice = self._choice
                if choice.identity is None or choice.identity.key != active.identity.key:
                    # The model is being changed: the old vectors are searched until the new are complete.
                    choice = choose_for_identity(self._settings, active.identity, active.base_url)
                # Those of former identities stay open: another thread may be using them.
                built = choice.build(vector_dims=active.vector_dims)
                self._embedders[key] = choice, built
            return self._embedders[key]


def _later(active: IdentityRow, wait_s: float, why: str) -> ProviderLater:
    return ProviderLater(
        f"{active.identity.provider} is not asked for another {wait_s:.0f} s{because(why)}",
        hint="ask again after that; keyword search goes on",
        retry_after_s=wait_s,
    )
