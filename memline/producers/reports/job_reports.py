"""Report jobs to the user: reindexes, first imports, model changes and backfills; find one by its id.

The face of jobs for the command line, the HTTP API and pages: `listed` and `named` give `NamedJob`s,
`report` gives what is shown of them as a `JobReport`. `producers.actions.reindex_job` changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import JobUnknown
from memline.shared.finding import Finding, worst
from memline.shared.findings.diagnosis import halting_codes, of_agent
from memline.shared.findings.facts import embeds
from memline.shared.index import driver, identities, jobs, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index.identities import IdentityRow
from memline.shared.index.jobs import Job, Left
from memline.shared.providers import price_of
from memline.shared.scheduling import health
from memline.shared.values import replace, value
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")

#: Jobs that are searched for what the user may have meant.
MAX_KNOWN = 1000

_LIST = "memline jobs ls"

#: Own prices, by model: `prices` of the configuration.
Prices = Mapping[str, Mapping[str, Any]]

#: What a kind of job is called.
KINDS = {
    jobs.IMPORT: "first import",
    jobs.REINDEX: "reindex",
    jobs.MODEL: "model change",
    jobs.BACKFILL: "backfill",
}


@value
class NamedJob:
    """A job and the agent it belongs to."""

    settings: AgentSettings
    job: Job


@value
class JobReport:
    """What is shown of a job."""

    agent: str
    job: Job
    #: What it still lacks; more comes with the files.
    left: Left
    #: Texts and tokens of the whole job by what its files have brought so far; None before the first file.
    texts_expected: int | None
    tokens_expected: int | None
    #: Its files and texts a second, in the last minute.
    files_per_second: float
    texts_per_second: float
    #: Seconds until it is done, at the rates of all jobs; older ones go first. None when nothing moves.
    eta_s: float | None = None
    #: In `currency`: what it has cost, and will have cost by the tokens expected. None without a price.
    cost: float | None
    cost_expected: float | None
    currency: str
    #: Why it does not move; empty when it does.
    findings: tuple[Finding, ...] = ()

    @property
    def texts(self) -> int:
        """Those of the files that were read."""
        return self.job.texts_done + self.left.texts + self.left.failed

    @property
    def reason(self) -> str:
        """Return why a job that is not over does not move; empty when it does."""
        return worst(self.findings)[0]

    @property
    def action(self) -> str:
        """Return what to do about it."""
        return worst(self.findings)[1]

    @property
    def name(self) -> str:
        """What kind of job it is, with its details, for a reader."""
        kind = KINDS[self.job.kind]
        return f"{kind} ({self.job.what})" if self.job.what else kind

    def words(self) -> str:
        """Say in a line how far it is."""
        job, more = self.job, ""
        if self.texts_expected and self.texts_expected > self.texts:
            more = f", total about {self.texts_expected}"
        line = f"{job.files_done} of {counted(job.files, 'file')} read, " if job.files else ""
        line += f"{job.texts_done} of {counted(self.texts, 'text')} embedded{more}"
        line += f", {self.left.failed} failed" if self.left.failed else ""
        if job.state == jobs.RUNNING and self.eta_s is not None:
            # A job behind an older one has no rate of its own.
            rate = f", rate {self.texts_per_second:.0f}/s" if self.texts_per_second else ""
            line += f"{rate}, ETA {span(self.eta_s)}"
        return line + (f", {self.reason}" if self.reason else "")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a job."""
        job, left = self.job, self.left
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
            "filesPerSecond": self.files_per_second,
            "textsPerSecond": self.texts_per_second,
            "etaSeconds": self.eta_s,
            "cost": {"soFar": self.cost, "expected": self.cost_expected, "currency": self.currency or None},
            # The same in words.
            "name": self.name,
            "progress": self.words(),
            "reason": self.reason,
            "action": self.action,
            "findings": [each.to_json() for each in self.findings],
            "history": [{"at": at, "event": event, "by": by} for at, event, by in job.events],
        }


def listed(
    agents: Sequence[AgentSettings],
    *,
    prices: Prices,
    now: float,
    limit: int = 10,
    only_open: bool = False,
    queue: str = "",
) -> list[JobReport]:
    """Report the open jobs of these agents and the last `limit` of each, newest first. Raises IndexFaults.

    `queue`: the address of a fleet's Redis.
    """
    reports: list[JobReport] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                latest = [] if only_open else jobs.latest(reader, limit)
                known = {job.id: job for job in (*jobs.open_jobs(reader), *latest)}
                reports += of_index(reader, settings, known.values(), prices=prices, now=now, queue=queue)
    return _newest_first(reports)


def named(agents: Sequence[AgentSettings], name: str) -> NamedJob:
    """Return the job that `name` means: its id or the beginning of it.

    Raises JobUnknown when there is none or more than one.
    """
    matches: list[NamedJob] = []
    known: list[str] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                matches += [NamedJob(settings=settings, job=job) for job in jobs.find(reader, name)]
                known += [job.token for job in jobs.latest(reader, MAX_KNOWN)]
    return only_one({each.job.token: each for each in matches}, name, known, noun="job", hint=_LIST)


def only_one(found: Mapping[str, T], name: str, known: Iterable[str], *, noun: str, hint: str) -> T:
    """Return what a user named, by its id. Raises JobUnknown for none or several, with what may be meant."""
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join([*found][:5])
        raise JobUnknown(f"{name!r} is the beginning of {counted(len(found), noun)}: {names}", hint=hint)
    near = get_close_matches(name, [*filter(None, known)], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise JobUnknown(f"there is no {noun} {name!r}{meant}", hint=hint)


def report(job: NamedJob, *, prices: Prices, now: float, queue: str = "") -> JobReport:
    """Report one job as it is now. Raises JobUnknown when its row was forgotten meanwhile."""
    with driver.reading(job.settings.index_path) as reader:
        row = jobs.by_token(reader, job.job.token)
        if row is None:
            raise JobUnknown(f"there is no job {job.job.token!r} any more", hint=_LIST)
        return of_index(reader, job.settings, [row], prices=prices, now=now, queue=queue)[0]


def of_index(
    reader: Connection,
    settings: AgentSettings,
    rows: Iterable[Job],
    *,
    prices: Prices,
    now: float,
    queue: str = "",
) -> list[JobReport]:
    """Report these jobs of an index, in their order."""
    # Both at one moment, or a text that was just embedded would count in both.
    with driver.snapshot(reader):
        left, opened = jobs.left(reader), jobs.open_jobs(reader)
    target = identities.target(reader)
    rates = (
        round(meta.recent_rate(reader, now, meta.READ_RECENTLY), 2),
        round(meta.recent_rate(reader, now), 2),
    )
    own = meta.rates_of_jobs(reader, now)
    has_batches = settings.memory.remote.batch.enabled
    if has_batches and target is not None:
        with Accounts.opened(reader, settings) as accounts:
            has_batches = not health.read(accounts, target.identity.provider, health.BATCH).is_stopped
    codes, is_halted = halting_codes() | {"job_paused"}, bool(queue) and not embeds(queue)
    found = of_agent(settings, index=reader, codes=codes, queue=queue, now=now)
    stops = tuple(each for each in found if each.halts and each.is_trouble)
    reports = {}
    # The older jobs go first, so their texts count for the time that a later one takes.
    ahead = 0.0
    wanted = {job.id: job for job in rows}
    for job in sorted({**wanted, **{job.id: job for job in opened}}.values(), key=lambda job: job.id):
        identity = identities.by_id(reader, job.identity_id) if job.identity_id else target
        own_rates = own.get(job.id, (0.0, 0.0))
        one = _report(
            settings, job, left.get(job.id, Left()), identity, own_rates, prices, has_batches=has_batches
        )
        if job.state == jobs.RUNNING:
            texts = (one.texts_expected or 0) - job.texts_done - one.left.failed
            ahead += max(texts, one.left.texts)
            eta_s = None if stops or is_halted else _eta_s(job, ahead, rates)
            one = replace(one, eta_s=eta_s, findings=stops if one.left.texts else ())
        elif job.state == jobs.PAUSED:
            held = (each for each in found if each.code == "job_paused" and each.subject == job.token)
            one = replace(one, findings=tuple(held))
        reports[job.id] = one
    return [reports[job_id] for job_id in wanted]


def _newest_first(reports: list[JobReport]) -> list[JobReport]:
    return sorted(reports, key=lambda report: (-report.job.created_ns, report.job.token))


def _report(
    settings: AgentSettings,
    job: Job,
    left: Left,
    identity: IdentityRow | None,
    rates: tuple[float, float],
    prices: Prices,
    *,
    has_batches: bool = False,
) -> JobReport:
    texts, tokens = job.texts_done + left.texts + left.failed, job.tokens_done + left.tokens
    texts_expected: int | None = texts
    tokens_expected: int | None = tokens
    if left.files:
        read = job.files_done
        texts_expected = round(texts * job.files / read) if read else None
        tokens_expected = round(tokens * job.files / read) if read else None
    price = None
    if identity is not None:
        is_public = not identity.identity.endpoint
        price = price_of(identity.identity.provider, identity.identity.model, public=is_public, own=prices)
    cost = expected = None
    if price is not None:
        by_request = price.cost(job.tokens_done - job.batch_tokens_done, by_batch=False)
        by_batch = price.cost(job.batch_tokens_done, by_batch=True) if job.batch_tokens_done else 0.0
        cost = None if by_request is None or by_batch is None else by_request + by_batch
        is_by_batch = has_batches and price.batch_per_million is not None
        if tokens_expected is not None and cost is not None:
            coming = price.cost(max(tokens_expected - job.tokens_done, 0), by_batch=is_by_batch)
            expected = None if coming is None else cost + coming
    return JobReport(
        agent=settings.agent,
        job=job,
        left=left,
        texts_expected=texts_expected,
        tokens_expected=tokens_expected,
        files_per_second=round(rates[0], 2),
        texts_per_second=round(rates[1], 2),
        cost=cost,
        cost_expected=expected,
        currency=price.currency if price else "",
    )


def _eta_s(job: Job, texts_ahead: float, rates: tuple[float, float]) -> float | None:
    """Estimate the seconds until a job is done; None when what it waits for does not move."""
    seconds = 0.0
    for amount, rate in zip((job.files - job.files_done, texts_ahead), rates, strict=True):
        if amount and not rate:
            return None
        seconds = max(seconds, amount / rate if amount else 0.0)
    return round(seconds, 1)
