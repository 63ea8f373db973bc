"""Queue `batch`: jobs of a provider's Batch API, brought there and looked at. Runs beside the index.

The rows of `shared.index.batches` say what is to be done; a message only says that it is time. Every step is
on record before the next one begins, so a message may come twice, late, or never.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import dramatiq

from shared.embedders.protocol import Identity
from shared.errors import MemlineError
from shared.index import batches, identity
from shared.index.batch_claims import Claim, ClaimLost, claimed
from shared.index.batch_clean import clean
from shared.index.batch_collect import collect
from shared.index.batch_over import Interrupted, stumble
from shared.index.batch_poll import poll
from shared.index.batch_submit import submit
from shared.index.driver import faults, open_writer
from shared.index.rows import VectorRow
from shared.logs import Log
from shared.queue.messages import (
    EmbedFailed,
    PollBatch,
    SettleBatch,
    StoreVectors,
    SubmitBatch,
    Sweep,
    decode,
)
from shared.queue.send import send
from workers import runtime

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Messages on the store queue above which a batch that is taken in waits: each is a megabyte of vectors.
MAX_STORE_DEPTH = 4

#: Why a batch that its provider does not have yet is given up.
SWITCHED_OFF = "remote.batch.enabled is off now"

_LOG = Log("batch")


@dramatiq.actor(queue_name="batch")
def submit_batch(raw: dict[str, Any]) -> None:
    """Bring a batch to its provider.

    Safe twice, late and out of order: it claims the batch by compare-and-set while it is not submitted yet,
    and looks for what an earlier run may have left at the provider.
    """
    message = decode(raw, SubmitBatch)
    here = runtime.current()
    with _work(here, message.agent, message.token, ("intent", "uploaded")) as work:
        if work is not None:
            api = here.batch_api(message.agent, work.identity, work.base_url)
            if not here.agent(message.agent).memory.remote.batch.enabled:
                work.claim.record(cancel_asked=here.clock.now(), cancel_reason=SWITCHED_OFF)
            is_over = submit(
                work.claim,
                api,
                work.connection,
                agent=message.agent,
                timing=here.batch_timing(message.agent),
                clock=here.clock,
                should_stop=here.stopping.is_set,
            )
            if is_over:
                work.settle()
    send(Sweep(agent=message.agent))


@dramatiq.actor(queue_name="batch")
def poll_batch(raw: dict[str, Any]) -> None:
    """Look at a batch once; take it in when it is final; remove its files when all is stored.

    Safe twice, late and out of order: it claims the batch by compare-and-set and does what its row says;
    texts that are stored already are skipped.
    """
    message = decode(raw, PollBatch)
    here = runtime.current()
    with _work(here, message.agent, message.token, ("submitted", "collecting", "cleaning")) as work:
        if work is not None:
            api = here.batch_api(message.agent, work.identity, work.base_url)
            look = None
            if work.claim.batch.state == "submitted":
                look = poll(work.claim, api, timing=here.batch_timing(message.agent), clock=here.clock)
            if work.claim.batch.state == "collecting":
                sink = _ToStore(here, message.agent, work.identity, message.token)
                missing = collect(work.claim, api, work.connection, sink, look=look, clock=here.clock)
                if missing is not None:
                    work.settle(missing)
            elif work.claim.batch.state == "cleaning":
                clean(work.claim, api, clock=here.clock)
    send(Sweep(agent=message.agent))


class _Work:
    """One batch, claimed."""

    def __init__(self, agent: str, claim: Claim, connection: Connection) -> None:
        self.claim = claim
        self.connection = connection
        row = identity.by_id(connection, claim.batch.identity_id)
        assert row is not None
        self.identity = row.identity
        self.base_url = row.base_url
        self._agent = agent

    def settle(self, missing: int | None = None) -> None:
        """Let the store worker end the batch, behind all that it brought."""
        token = self.claim.batch.token
        if missing is None:
            missing = batches.texts_left(self.connection, token)
        send(SettleBatch(agent=self._agent, token=token, missing=missing))


@contextmanager
def _work(here: runtime.Runtime, agent: str, token: str, states: Collection[str]) -> Iterator[_Work | None]:
    """The claim on a batch for a block; None when there is nothing to do, or another process does it."""
    path = here.agent(agent).index_path
    with (
        faults(path),
        closing(open_writer(path)) as connection,
        claimed(connection, token, states, here.clock) as claim,
    ):
        if claim is None:
            yield None
            return
        was = claim.batch.state
        work = _Work(agent, claim, connection)
        try:
            yield work
        except ClaimLost as error:
            _LOG.warning("batch.lost", batch=token, state=claim.batch.state, reason=error.message)
        except Interrupted:
            # Whoever comes next goes on at once.
            claim.record(due=here.clock.now())
        except MemlineError:
            raise
        except Exception as error:
            # The boundary of the process: whatever it was, the batch must not hang on it for ever.
            if stumble(claim, f"{type(error).__name__}: {error}", here.clock):
                work.settle()
            raise
        finally:
            batch = claim.batch
            _LOG.info(
                "batch.step",
                batch=token,
                was=was,
                state=batch.state,
                job=batch.job_id,
                said=batch.said,
                rows=batch.rows,
                error=batch.error,
            )


class _ToStore:
    """Sends what a batch brought to the store worker, no faster than it can store."""

    def __init__(self, here: runtime.Runtime, agent: str, of: Identity, token: str) -> None:
        self._here = here
        self._agent = agent
        self._of = of
        self._token = token

    def vectors(self, rows: tuple[VectorRow, ...]) -> None:
        self._wait()
        send(StoreVectors(agent=self._agent, identity=self._of, lease=self._token, vectors=rows))

    def failures(self, hashes: tuple[bytes, ...], *, kind: str, error: str, action: str) -> None:
        self._wait()
        send(
            EmbedFailed(
                agent=self._agent,
                identity=self._of,
                lease=self._token,
                hashes=hashes,
                kind=kind,
                error=error,
                action=action,
            )
        )

    def _wait(self) -> None:
        self._here.wait_for_room(MAX_STORE_DEPTH)
        if self._here.stopping.is_set():
            raise Interrupted("this process was told to stop")
