"""Show dead, delayed and waiting messages, and requeue or drop those selected or all that match."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from memline.producers.web.page import Action, Data, Done, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT
from memline.shared.errors import BadRequest
from memline.shared.queue import message_list
from memline.shared.queue.message_list import DEAD, DELAYED, STATES, Filter
from memline.shared.queue.routes import QUEUES
from memline.shared.words import counted

#: Messages of a page.
PAGE = 50

#: Names of a filter in an address and a form, as the options of the command.
_FIELDS = ("state", "queue", "actor", "agent", "path", "error")

#: Messages that one form may select: more than a page shows, less than a body holds.
_MAX_SELECTED = 500

#: Verb -> what was done, and the states that allow it.
_VERBS = {"requeue": ("put back on the queues", (DEAD, DELAYED)), "drop": ("removed", STATES)}


def _filter(given: Mapping[str, str]) -> Filter:
    """Read a filter from an address or a form. Raises BadRequest."""
    fields = {name: given.get(name, "").strip() for name in _FIELDS}
    fields["state"] = fields["state"] or DEAD
    if fields["state"] not in STATES:
        raise BadRequest(
            f"{fields['state'][:80]!r} is not a state", hint=f"the states are: {', '.join(STATES)}"
        )
    return Filter(**fields)


def _words(where: Filter) -> dict[str, str]:
    """Return the fields of a filter that are set, for an address, a form and a command."""
    fields = {name: getattr(where, name) for name in _FIELDS}
    return {name: text for name, text in fields.items() if text}


def _command(verb: str, where: Filter) -> str:
    agent = ["--agent", where.agent] if where.agent else []
    fields = {name: text for name, text in _words(where).items() if name != "agent"}
    return command_line(
        *agent, "queue", verb, *(part for name, text in fields.items() for part in (f"--{name}", text))
    )


def _messages(view: View) -> Data:
    where = _filter(view.query)
    found = message_list.page(view.queue_url, where, cursor=view.query.get("after", ""), limit=PAGE)
    words = _words(where)
    after = urlencode({**words, "after": found.cursor}) if found.cursor else ""
    return {
        "where": where,
        "words": words,
        "states": STATES,
        "queues": sorted({*QUEUES, *filter(None, [where.queue])}),
        "messages": found.messages,
        "after": f"{ROOT}/messages?{after}" if after else "",
        "is_later": bool(view.query.get("after")),
        "first": f"{ROOT}/messages?{urlencode(words)}",
        "all": {
            verb: f"{ROOT}/messages/all?{urlencode({**words, 'verb': verb})}" for verb in _allowed(where)
        },
        "command": _command("messages", where),
    }


def _allowed(where: Filter) -> list[str]:
    return [verb for verb, (_, states) in _VERBS.items() if where.state in states]


def _message(view: View) -> Data:
    state, queue, name = (view.query.get(each, "") for each in ("state", "queue", "id"))
    where = _filter({"state": state})
    found = message_list.details(view.queue_url, where.state, queue, name)
    if found is None:
        raise PageMissing(
            f"there is no {where.state} message {name[:80]!r} on this queue", hint="it was taken, or removed"
        )
    return {
        "details": found,
        "message": found.message,
        "verbs": [
            (verb, command_line("queue", verb, "--state", where.state, "--queue", queue, "--id", name))
            for verb in _allowed(where)
        ],
    }


def _all(view: View) -> Data:
    """Count all that match, to be confirmed."""
    where, verb = _filter(view.query), view.query.get("verb", "")
    _check(verb, where)
    return {
        "where": where,
        "words": _words(where),
        "verb": verb,
        "count": len(message_list.matching(view.queue_url, where)),
        "back": f"{ROOT}/messages?{urlencode(_words(where))}",
        "command": _command(verb, where),
    }


def _check(verb: str, where: Filter) -> None:
    if verb not in _allowed(where):
        raise BadRequest(f"{verb[:80]!r} is not possible with {where.state} messages", hint="requeue or drop")


def _requeue(view: View) -> Done:
    return _change(view, "requeue")


def _drop(view: View) -> Done:
    return _change(view, "drop")


def _change(view: View, verb: str) -> Done:
    where = _filter(view.form)
    _check(verb, where)
    if view.form.get("all") == "1":
        # No more than were confirmed: those that failed since then come last.
        confirmed = view.form.get("count", "")
        if not confirmed.isascii() or not confirmed.isdecimal() or len(confirmed) > 9:
            raise BadRequest("the count was not confirmed", hint="open the page of the messages again")
        chosen = message_list.matching(view.queue_url, where, limit=int(confirmed))
    else:
        chosen = []
        for each in view.form.getlist("message")[:_MAX_SELECTED]:
            queue, _, name = each.partition(" ")
            chosen.append((queue, name))
        if not chosen:
            raise BadRequest("no message is selected", hint="select some, or all that match")
    change = message_list.requeue if verb == "requeue" else message_list.drop
    count = change(view.queue_url, where.state, chosen)
    words = f"{counted(count, 'message')} {_VERBS[verb][0]}."
    if count < len(chosen):
        words += f" {counted(len(chosen) - count, 'other')} had been taken or removed meanwhile."
    page = f"/messages?{urlencode(_words(where))}"
    # What the messages are about stays out of the log.
    audit = {"state": where.state, "queue": where.queue, "count": count, "asked": len(chosen)}
    return Done(words=words, page=page, audit=audit)


PAGES = (
    Page(
        path="/messages",
        title="Messages",
        template="messages.html",
        data=_messages,
        is_for_all=True,
        needs_queue=True,
    ),
    Page(
        path="/messages/all",
        title="All messages that match",
        template="messages_all.html",
        data=_all,
        is_in_nav=False,
        is_for_all=True,
        needs_queue=True,
    ),
    Page(
        path="/messages/one",
        title="Message",
        template="message.html",
        data=_message,
        is_in_nav=False,
        is_for_all=True,
        needs_queue=True,
    ),
)

ACTIONS = (
    Action(path="/messages/requeue", verb="requeue", run=_requeue, is_for_all=True, needs_queue=True),
    Action(path="/messages/drop", verb="drop", run=_drop, is_for_all=True, needs_queue=True),
)
