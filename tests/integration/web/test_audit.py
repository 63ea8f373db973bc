"""The page Audit: who did what, of all faces, and who sees it."""

from contextlib import closing

import pytest

from memline.producers.actions.perform import audited
from memline.producers.calls.table import CALLS
from memline.producers.web import overview_page
from memline.shared.errors import MemlineError
from memline.shared.figures import kept_actions
from memline.shared.index.accounts import AccountFile
from tests.integration.web.conftest import ALL, WORK, Opener
from tests.support.browser import Browser
from tests.support.workspace import Place


def did(place: Place, name: str, by: str, error: str = "", **fields: object) -> None:
    """Do what the call of this name does, but for doing it."""
    try:
        with audited(CALLS[name], by, place.settings.account_path) as line:
            line |= fields
            if error:
                raise MemlineError(error)
    except MemlineError:
        pass


def rows(browser: Browser, **query: object) -> list[str]:
    said = browser.shows("/audit", **query)
    return said.partition("Outcome")[2].partition("The last 10,000")[0].split(" done ")


def test_what_was_done_on_a_page_or_by_a_command_is_told_newest_first(
    opened: Opener, notes: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = opened(tokens=[{"name": "Ada's laptop", "token": ALL, "role": "owner"}])
    browser.log_in(ALL)
    browser.post("/index", agent="main")
    assert notes.run("--agent", "work", "index").status == 0

    shown = browser.shows("/audit")

    before, _, after = shown.partition("index Ada's laptop")
    assert "login Ada's laptop" in after and "address 127.0.0.1" in after
    assert "index " in before.partition("Outcome")[2] and "@" in before.partition("Outcome")[2]
    assert ALL not in shown


def test_a_line_has_its_subject_and_its_outcome(owner: Browser, notes: Place) -> None:
    did(notes, "jobs pause", "ada", agent="main", job="5f3a", changed=True)
    did(notes, "jobs cancel", "ada", error="there is no job <b>", agent="main")
    did(notes, "forget", "ada", error="nothing holds: my secret", agent="main")

    shown = owner.shows("/audit")

    assert "jobs pause ada" in shown and "main job 5f3a, changed True done" in shown
    assert "failed there is no job <b>" in shown
    # It was asked to leave nothing of this.
    assert "my secret" not in shown and "forget ada" in shown


def test_lines_are_filtered_by_who_and_what(owner: Browser, notes: Place) -> None:
    for by, name in (("ada", "jobs pause"), ("bob", "jobs pause"), ("bob", "jobs resume")):
        did(notes, name, by, agent="main", job=f"of-{by}")

    assert "of-ada" not in owner.shows("/audit", by="bob")
    assert owner.shows("/audit", by="bob").count("of-bob") == 2
    assert owner.shows("/audit", by="bob", action="jobs resume").count("of-bob") == 1
    assert "Nothing was done" in owner.shows("/audit", by="nobody")


def test_a_token_of_an_agent_sees_what_was_done_of_its_own(worker: Browser, notes: Place) -> None:
    did(notes, "jobs pause", "ada", agent="main", job="of-main")
    did(notes, "queue pause", "ada", agents="main, work", provider="of-both")
    did(notes, "jobs pause", "carl", agent="work", job="of-work")

    page = worker.get("/audit")

    assert "of-work" in page.text and "tokens.work" in page.text
    for hidden in ("of-main", "of-both", "ada", ">token<"):
        assert hidden not in page.text


def test_pages_follow_one_another(owner: Browser, notes: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_page, "PAGE", 2)
    for number in range(5):
        did(notes, "jobs pause", "ada", job=f"job-{number}")

    first = owner.get("/audit", by="ada")
    second = owner.client.get(f"/ui/audit{link(first.text)}")
    last = owner.client.get(f"/ui/audit{link(second.text)}")

    assert [jobs(each.text) for each in (first, second, last)] == [[4, 3], [2, 1], [0]]
    assert "the newest" in last.text and 'rel="next"' not in last.text


def link(page: str) -> str:
    return page.partition(' rel="next"')[0].rpartition('href="')[2].rstrip('"').replace("&amp;", "&")


def jobs(page: str) -> list[int]:
    return [int(part[0]) for part in page.split("job-")[1:]]


def test_a_home_keeps_the_newest_lines_alone(notes: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_actions, "MOST_LINES", 3)
    for number in range(5):
        did(notes, "jobs pause", f"user-{number}")

    with closing(AccountFile(notes.settings.account_path)) as file:
        kept = kept_actions.listed(file, "", count=100)

    assert [line.by for line in kept] == ["user-4", "user-3", "user-2"]
    assert WORK not in str(kept)
