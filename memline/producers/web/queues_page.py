"""Show a fleet: its queues, their messages by group, its workers, the provider accounts; change them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from memline.producers.actions.perform import Done, audited
from memline.producers.calls.table import CALLS
from memline.producers.reports import breakers as reports
from memline.producers.web.charts import spark
from memline.producers.web.listing import by, listing
from memline.producers.web.page import Action, Data, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT
from memline.producers.web.snapshot import AgentFigures
from memline.shared.errors import BadRequest, MemlineError
from memline.shared.findings.diagnosis import processes
from memline.shared.queue import message_changes, message_list
from memline.shared.queue.depth import rates
from memline.shared.queue.message_list import DEAD, DELAYED, IN_FLIGHT, STATES, Filter
from memline.shared.queue.routes import QUEUES
from memline.shared.scheduling.health import BATCH, REQUESTS
from memline.shared.values import replace
from memline.shared.words import counted

#: Role whose queue an operator can pause -> the mode of the provider behind it.
_MODES = {"embed": REQUESTS, "batch": BATCH}


#: Columns of the tables, and what they are ordered by.
_QUEUE_KEYS = by(
    queue="depth.name", waiting="depth.waiting", flight="depth.in_flight", delayed="depth.delayed",
    dead="depth.dead", oldest="depth.oldest_s", rate="depth.rate_per_minute",
)  # fmt: skip
_WORKER_KEYS = by(
    role="role", host="host", pid="pid", version="version", busy="threadsBusy", heartbeat="lastSeenSeconds",
    work=lambda worker: worker["current"][0]["ageSeconds"] if worker["current"] else None,
    memory="memoryBytes", started="started",
)  # fmt: skip
_PROVIDER_KEYS = by(
    name="0.name", agent="0.agentId", state="1.state", why="1.reason", probe="1.nextProbe",
    minute="0.minute.requests", calls="0.lastDay.calls",
    errors=lambda row: sum(row[0]["lastDay"]["errors"].values()),
)  # fmt: skip


def _queues(view: View) -> Data:
    snapshot = view.site.live.read(0.0)
    fleet, names = snapshot.fleet, [settings.agent for settings in view.agents]
    counts = rates(view.queue_url) if fleet else {}
    paused = {mode: paused_agents(list(snapshot.agents.values()), mode) for mode in ("", *_MODES.values())}
    rows = [
        {
            "depth": depth,
            # Messages finished over ten minutes.
            "runs": spark([float(count) for count in counts.get(depth.name, ())]),
            # Whether a worker takes its messages, and the agents whose provider is paused in its mode.
            "is_served": fleet.is_served(depth),
            "paused": paused[_MODES[depth.role]] if depth.role in _MODES else (),
        }
        for depth in (fleet.queues if fleet else ())
        if fleet
    ]
    return {
        "queues": listing(view, rows, _QUEUE_KEYS),
        # Mode and its queue, or all -> the agents that can be paused, and those that can be resumed: of a
        # pause of all only a resume of all is an end.
        "switches": [
            (
                mode,
                role,
                [each for each in names if each not in paused[mode]],
                [each for each in paused[mode] if not mode or each not in paused[""]],
            )
            for mode, role in (("", "all"), *((mode, role) for role, mode in _MODES.items()))
        ],
    }


def paused_agents(agents: Sequence[AgentFigures], mode: str) -> tuple[str, ...]:
    """Name the agents whose provider an operator paused in a mode; without one, in all at once."""

    def is_paused(provider: Mapping[str, Any]) -> bool:
        modes = [each for each in provider["modes"] if each["mode"] == mode]
        return provider["paused"] or any(each["pausedByHand"] for each in modes)

    return tuple(each.agent for each in agents if each.state and any(map(is_paused, each.state["providers"])))


def _workers(view: View) -> Data:
    snapshot = view.site.live.read(0.0)
    workers = [each.to_json() for each in snapshot.fleet.workers] if snapshot.fleet else []
    # Those of the home that have no heartbeat in Redis.
    others = [each.to_json() for each in processes(view.agents[0])] if view.agents else []
    return {"workers": listing(view, workers, _WORKER_KEYS), "processes": others}


def _providers(view: View) -> Data:
    found, errors = [], []
    for settings in view.agents:
        try:
            found += reports.of_agent(settings, view.site.settings)
        except MemlineError as error:
            errors.append(error.message)
    rows = [(provider, mode) for provider in found for mode in provider["modes"]]
    return {
        "providers": listing(view, rows, _PROVIDER_KEYS),
        # Of all agents of the home, so the same for each.
        "spending": [
            *{(each["provider"], each["model"]): each for one in found for each in one["spending"]}.values()
        ],
        "errors": errors,
        "now": time.time(),
        "command": command_line("queue", "providers"),
    }


#: Messages of a page.
PAGE = 50

#: Names of a filter in an address and a form, as the options of the command.
_FIELDS = ("state", "queue", "agent", "group")

#: Messages that one form may select: more than a page shows, less than a body holds.
_MAX_SELECTED = 500

#: Verb -> what was done, and the states that allow it.
_VERBS = {"requeue": ("put back on the queues", (DEAD, DELAYED)), "drop": ("removed", STATES)}


def _filter(given: Mapping[str, str]) -> Filter:
    """Read a filter from an address or a form. Raises BadRequest."""
    fields: dict[str, Any] = {name: given.get(name, "").strip() for name in _FIELDS}
    fields["state"] = fields["state"] or DEAD
    if fields["state"] not in STATES:
        raise BadRequest(
            f"{fields['state'][:80]!r} is not a state", hint=f"name one of these: {', '.join(STATES)}"
        )
    return Filter(**fields)


def _words(where: Filter) -> dict[str, Any]:
    """Return the fields of a filter that are set, for an address, a form and a command."""
    fields = {name: getattr(where, name) for name in _FIELDS}
    return {name: text for name, text in fields.items() if text}


def _command(verb: str, where: Filter) -> str:
    agent = ["--agent", where.agent] if where.agent else []
    fields = {name: text for name, text in _words(where).items() if name != "agent"}
    if verb == "dead":
        fields.pop("state")
    elif verb == "drop" and not (where.queue or where.group):
        fields["match"] = "*"
    return command_line(
        *agent, "queue", verb, *(part for name, text in fields.items() for part in (f"--{name}", text))
    )


def _commands(where: Filter) -> list[tuple[str, str]]:
    """List what can be done with these messages, each verb with its command."""
    return [(verb, _command(verb, where)) for verb in _allowed(where)]


def _messages(view: View) -> Data:
    where = _filter(view.query)
    found = message_list.page(view.queue_url, where, cursor=view.query.get("after", ""), limit=PAGE)
    is_later, words = bool(view.query.get("after")), _words(where)
    groups = message_list.groups(view.queue_url, where) if where.state == DEAD and not is_later else []
    after = urlencode({**words, "after": found.cursor}) if found.cursor else ""
    return {
        "where": where,
        "words": words,
        "states": STATES,
        "queues": sorted({*QUEUES, *filter(None, [where.queue])}),
        "counts": {queue: count for queue, count in found.counts.items() if count},
        "groups": [(each, _commands(Filter(**{**words, "group": each.id}))) for each in groups],
        "messages": found.messages,
        "after": f"{ROOT}/messages?{after}" if after else "",
        "is_later": is_later,
        "is_all": view.query.get("select") == "all",
        "select": f"{ROOT}/messages?{urlencode({**view.query, 'select': 'all'})}",
        "first": f"{ROOT}/messages?{urlencode(words)}",
        "verbs": _allowed(where),
        "total": sum(found.counts.values()),
        # How many an agent has is not known without reading all.
        "all": [] if where.agent or where.group else _commands(where),
        "command": _command("dead" if where.state == DEAD else "messages", where),
    }


def _allowed(where: Filter) -> list[str]:
    return [verb for verb, (_, states) in _VERBS.items() if where.state in states]


def _message(view: View) -> Data:
    state, queue, name = (view.query.get(each, "") for each in ("state", "queue", "id"))
    where = Filter(state=state) if state == IN_FLIGHT else _filter({"state": state})
    found = message_list.details(view.queue_url, where.state, queue, name)
    if found is None:
        raise PageMissing(
            f"there is no {where.state} message {name[:80]!r} on this queue",
            hint="look at the list again: it was taken, or removed",
        )
    return {
        "message": found,
        # Of others there is no page of a file.
        "agents": [settings.agent for settings in view.agents],
        "verbs": [
            (verb, command_line("queue", verb, "--state", where.state, "--queue", queue, "--id", name))
            for verb in _allowed(where)
        ],
    }


def _chosen(view: View, where: Filter) -> list[tuple[str, str]]:
    """Return the messages (queue, id) that a form means. Raises BadRequest."""
    if view.form.get("all") == "1":
        # No more than the page showed: those that failed since then come last.
        shown = view.form.get("count", "")
        if not shown.isascii() or not shown.isdecimal() or len(shown) > 9:
            raise BadRequest("how many there were is not said", hint="open the page of the messages again")
        found = message_list.listed(view.queue_url, where, limit=int(shown))
        return [(each.queue, each.id) for each in found]
    selected = [each.partition(" ") for each in view.form.getlist("message")[:_MAX_SELECTED]]
    if not selected:
        raise BadRequest("no message is selected", hint="select some, or all of a group")
    return [(queue, name) for queue, _, name in selected]


def words_before_drop(view: View) -> Iterator[str]:
    """Say what the form of a drop would remove now, and what is lost with it."""
    where = _filter(view.form)
    chosen = {*_chosen(view, where)}
    yield f"{counted(len(chosen), 'message', 'are')} removed for good, with the error of each."
    yield "What they are about is in the rows and is sent again when it is due."
    of_ids = replace(where, ids=tuple({name for _, name in chosen}))
    found = message_list.listed(view.queue_url, of_ids) if chosen else []
    paid = message_changes.paid_answers(each for each in found if (each.queue, each.id) in chosen)
    yield message_changes.loss_of(paid) or "No answer that is paid for is among them."


def _change(verb: str, view: View) -> Done:
    where = _filter(view.form)
    if verb not in _allowed(where):
        raise BadRequest(f"{verb} is not possible with {where.state} messages", hint="drop them")
    chosen = _chosen(view, where)
    change = message_changes.requeue if verb == "requeue" else message_changes.drop
    count = change(view.queue_url, where.state, chosen)
    words = f"{counted(count, 'message')} {_VERBS[verb][0]}."
    if count < len(chosen):
        words += f" {counted(len(chosen) - count, 'other')} had been taken or removed meanwhile."
    page = f"/messages?{urlencode({**_words(where), 'group': ''})}"
    # What the messages are about stays out of the log.
    path = view.site.settings.account_path
    with audited(CALLS[f"queue {verb}"], view.access.client, path, where.agent) as line:
        line |= {"state": where.state, "queue": where.queue, "count": count, "asked": len(chosen)}
    return Done(value=None, words=(words,), page=page)


ACTIONS = tuple(
    Action(call=CALLS[f"queue {verb}"], run=partial(_change, verb), path=f"/messages/{verb}")
    for verb in _VERBS
)

PAGES = (
    Page(
        path="/queues",
        title="Queues",
        group="Fleet",
        template="queues.html",
        data=_queues,
        is_for_all=True,
        needs_queue=True,
        tells=("queues", "workers", "messages"),
    ),
    Page(
        path="/workers",
        title="Workers",
        group="Fleet",
        template="workers.html",
        data=_workers,
        is_for_all=True,
        needs_queue=True,
        tells=("queues", "workers"),
    ),
    Page(
        path="/providers",
        title="Providers",
        group="Work",
        template="providers.html",
        data=_providers,
        is_for_all=True,
        tells=("providers",),
    ),
    Page(
        path="/messages",
        title="Messages",
        group="Fleet",
        template="messages.html",
        data=_messages,
        is_for_all=True,
        needs_queue=True,
    ),
    Page(
        path="/messages/one",
        title="Message",
        template="message.html",
        data=_message,
        is_for_all=True,
        needs_queue=True,
    ),
)
