"""Report jobs: reindexes, first imports, model changes and backfills; find one by its id."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import JobUnknown
from memline.shared.finding import Finding, worst
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import batches, driver, identities, jobs, meta
from memline.shared.index.identities import IdentityRow
from memline.shared.index.jobs import Job, Left
from memline.shared.providers import price_of
from memline.shared.scheduling import health
from memline.shared.scheduling.health import Health
from memline.shared.words import counted, share, span

T = TypeVar("T")

_LIST = "memline jobs"

#: Own prices, by model: `prices` of the configuration.
Prices = Mapping[str, Mapping[str, Any]]

#: What a kind of job is called.
KINDS = {
    jobs.IMPORT: "first import",
    jobs.REINDEX: "reindex",
    jobs.MODEL: "model change",
    jobs.BACKFILL: "backfill",
}


class NamedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job and the agent it belongs to."""

    settings: AgentSettings
    job: Job


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a job."""

    agent: str
    job: Job
    #: What it still lacks; more comes with the files.
    left: Left
    #: Texts and tokens of the whole job by what its files have brought so far; None before the first file.
    texts_expected: int | None
    tokens_expected: int | None
    #: Seconds until it is done, at the rates of all jobs; older ones go first. None when nothing moves.
    eta_s: float | None = None
    #: Dollars that it has cost, and will have cost by the tokens expected. None without a price.
    cost: float | None
    cost_expected: float | None
    #: Why it does not move; empty when it does.
    findings: tuple[Finding, ...] = ()

    @property
    def texts(self) -> int:
        """Those of the files that were read."""
        return self.job.texts_done + self.left.texts + self.left.failed

    @property
    def name(self) -> str:
        """What kind of job it is, with its details, for a reader."""
        kind = KINDS[self.job.kind]
        return f"{kind} ({self.job.what})" if self.job.what else kind

    def words(self) -> str:
        """Say in a line how far it is."""
        job, more = self.job, ""
        if self.texts_expected and self.texts_expected > self.texts:
            more = f", total about {self.texts_expected:,}"
        line = f"{share(job.files_done, job.files, 'file')} read, " if job.files else ""
        line += f"{share(job.texts_done, self.texts, 'text')} embedded{more}"
        line += f", {self.left.failed:,} failed" if self.left.failed else ""
        if job.state == jobs.RUNNING and self.eta_s is not None:
            line += f", ETA {span(self.eta_s)}"
        why = worst(self.findings)[0]
        return f"{line}, {why}" if why else line

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a job."""
        job, left = self.job, self.left
        reason, action = worst(self.findings)
        return {
            "agentId": self.agent,
            "id": job.token,
            # import, reindex, model or backfill; and more about it: the model, or that all files are read.
            "kind": job.kind,
            "what": job.what,
            "askedBy": job.asked_by,
            "createdAt": job.created_ns / 1e9,
            "endedAt": job.ended_at or None,
            "state": job.state,
            "files": {"done": job.files_done, "total": job.files},
            "texts": {
                "done": job.texts_done,
                "left": left.texts,
                "failed": left.failed,
                "total": self.texts,
                "expected": self.texts_expected,
            },
            "tokens": {
                "done": job.tokens_done,
                "total": job.tokens_done + left.tokens,
                "expected": self.tokens_expected,
            },
            "etaSeconds": self.eta_s,
            "cost": {"soFar": self.cost, "expected": self.cost_expected, "currency": "USD"},
            # The same in words.
            "name": self.name,
            "progress": self.words(),
            "reason": reason,
            "action": action,
            "findings": [each.to_json() for each in self.findings],
        }


def listed(
    agents: Sequence[AgentSettings],
    *,
    prices: Prices,
    limit: int = 10,
    only_open: bool = False,
    queue: QueueAddress = NO_QUEUE,
) -> list[JobReport]:
    """Report the open jobs of these agents and the last `limit` of each, newest first. Raises IndexFaults.

    `queue`: the address of a fleet's Redis.
    """
    reports: list[JobReport] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is None:
                continue
            now = time.time()
            with closing(Facts(settings, choose(settings), reader, now=now, queue=queue)) as facts:
                known = jobs.listed(reader)
                latest = [] if only_open else known[:limit]
                shown = [job for job in known if not job.ended_at or job in latest]
                reports += of_jobs(facts, shown, prices)
    return sorted(reports, key=lambda report: (-report.job.created_ns, report.job.token))


def named(agents: Sequence[AgentSettings], name: str, others: Mapping[str, T] | None = None) -> NamedJob | T:
    """Return the job that `name` means: its id or the beginning of it, or the one of `others`, by their ids.

    Raises JobUnknown when there is none or more than one, with what may be meant.
    """
    matches: dict[str, NamedJob | T] = {**(others or {})}
    known: list[str] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                own = jobs.listed(reader)
                known += [job.token for job in own]
                known += [batch.token[: len(name)] for batch in batches.listed(reader)]
                matches |= {
                    job.token: NamedJob(settings=settings, job=job)
                    for job in own
                    if name and job.token.startswith(name)
                }
    if len(matches) == 1:
        return next(iter(matches.values()))
    if matches:
        names = ", ".join([*matches][:5])
        raise JobUnknown(f"{name!r} is the beginning of {counted(len(matches), 'job')}: {names}", hint=_LIST)
    near = get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise JobUnknown(f"there is no job {name!r}{meant}", hint=_LIST)


def report(job: NamedJob, *, prices: Prices, queue: QueueAddress = NO_QUEUE) -> JobReport:
    """Report one job as it is now. Raises JobUnknown when its row was forgotten meanwhile."""
    settings = job.settings
    with driver.reading(settings.index_path) as reader:
        row = jobs.by_token(reader, job.job.token)
        if row is None:
            raise JobUnknown(f"there is no job {job.job.token!r} any more", hint=_LIST)
        now = time.time()
        with closing(Facts(settings, choose(settings), reader, now=now, queue=queue)) as facts:
            return of_jobs(facts, [row], prices)[0]


def of_jobs(facts: Facts, rows: Iterable[Job], prices: Prices) -> list[JobReport]:
    """Report these jobs of an index, in their order."""
    reader, now = facts.index, facts.now
    assert reader is not None
    # Both at one moment, or a text that was just embedded would count in both.
    with driver.snapshot(reader):
        opened, left = facts.jobs, facts.left
    rates = meta.recent_rate(reader, now, meta.READ_RECENTLY), meta.recent_rate(reader, now)
    stop, findings = sending(facts), check(facts)
    stops = tuple(each for each in findings if stop is not None and each.code == stop.code)
    reports = {}
    # The older jobs go first, so their texts count for the time that a later one takes.
    ahead = 0.0
    wanted = {job.id: job for job in rows}
    for job in sorted({**wanted, **{job.id: job for job in opened}}.values(), key=lambda job: job.id):
        one = _report(facts, job, left.get(job.id, Left()), prices)
        if job.state == jobs.RUNNING:
            texts = (one.texts_expected or 0) - job.texts_done - one.left.failed
            ahead += max(texts, one.left.texts)
            eta_s = None if stop is not None else _eta_s(job, ahead, rates)
            one = msgspec.structs.replace(one, eta_s=eta_s, findings=stops if one.left.texts else ())
        elif job.state == jobs.PAUSED:
            held = tuple(each for each in findings if (each.code, each.subject) == ("job_paused", job.token))
            one = msgspec.structs.replace(one, findings=held)
        reports[job.id] = one
    return [reports[job_id] for job_id in wanted]


def _report(facts: Facts, job: Job, left: Left, prices: Prices) -> JobReport:
    texts, tokens = job.texts_done + left.texts + left.failed, job.tokens_done + left.tokens
    texts_expected: int | None = texts
    tokens_expected: int | None = tokens
    if left.files:
        read = job.files_done
        texts_expected = round(texts * job.files / read) if read else None
        tokens_expected = round(tokens * job.files / read) if read else None
    identity = facts.target
    if job.identity_id and facts.index is not None:
        identity = identities.by_id(facts.index, job.identity_id)
    cost, expected = _costs(facts, job, identity, tokens_expected, prices)
    return JobReport(
        agent=facts.agent,
        job=job,
        left=left,
        texts_expected=texts_expected,
        tokens_expected=tokens_expected,
        cost=cost,
        cost_expected=expected,
    )


def _costs(
    facts: Facts, job: Job, row: IdentityRow | None, tokens_expected: int | None, prices: Prices
) -> tuple[float | None, float | None]:
    """Return what a job has cost and what it will have cost; None without a price."""
    if row is None:
        return None, None
    identity = row.identity
    price = price_of(identity.provider, identity.model, public=not identity.endpoint, own=prices)
    if price is None:
        return None, None
    by_request = price.cost(job.tokens_done - job.batch_tokens_done, by_batch=False)
    by_batch = price.cost(job.batch_tokens_done, by_batch=True) if job.batch_tokens_done else 0.0
    if by_request is None or by_batch is None:
        return None, None
    if tokens_expected is None:
        return by_request + by_batch, None
    state = facts.breakers.get((identity.provider, health.BATCH), Health())
    has_batches = facts.settings.memory.remote.batch.enabled and not state.is_stopped
    is_by_batch = has_batches and price.batch_per_million is not None
    coming = price.cost(max(tokens_expected - job.tokens_done, 0), by_batch=is_by_batch)
    so_far = by_request + by_batch
    return so_far, None if coming is None else so_far + coming


def _eta_s(job: Job, texts_ahead: float, rates: tuple[float, float]) -> float | None:
    """Estimate the seconds until a job is done; None when what it waits for does not move."""
    seconds = 0.0
    for amount, rate in zip((job.files - job.files_done, texts_ahead), rates, strict=True):
        if amount and not rate:
            return None
        seconds = max(seconds, amount / rate if amount else 0.0)
    return round(seconds, 1)
