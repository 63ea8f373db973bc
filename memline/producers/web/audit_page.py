"""Show who did what: the kept lines of the audit log."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlencode

from memline.producers.web.page import Data, Page, View
from memline.shared.figures import kept_actions
from memline.shared.index.accounts import AccountFile

#: Lines of a page.
PAGE = 100


def _audit(view: View) -> Data:
    where = {name: view.query.get(name, "").strip() for name in ("by", "action")}
    before, only = view.number("before", 0), view.access.only
    with closing(AccountFile(view.site.settings.account_path)) as file:
        lines = kept_actions.listed(file, only, **where, before=before, count=PAGE + 1)
        askers, actions = kept_actions.known(file, only)
    words = {name: text for name, text in where.items() if text}
    more, lines = len(lines) > PAGE, lines[:PAGE]
    return {
        "where": where,
        "askers": askers,
        "actions": actions,
        "lines": lines,
        "first": f"?{urlencode(words)}" if before else "",
        "after": f"?{urlencode({**words, 'before': lines[-1].id})}" if more else "",
        "most": kept_actions.MOST_LINES,
    }


PAGES = (Page(path="/audit", title="Audit", group="History", template="audit.html", data=_audit),)
