"""Tables are ordered and paged by links."""

import re

from memline.producers.runs.index_run import bring_up_to_date
from tests.support.browser import Browser
from tests.support.workspace import Place


def column(page: str) -> list[str]:
    """The first cell of each row of a page."""
    return re.findall(r'<th scope="row"[^>]*>(?:<a[^>]*>)?([^<]*)', page)


def href(page: str, words: str) -> str:
    found = re.search(rf'<a href="([^"]*)"[^>]*>{words}</a>', page)
    assert found, words
    return found[1].replace("&amp;", "&")


def test_agents_are_ordered_both_ways_round_by_the_link_of_a_column(browser: Browser) -> None:
    page = browser.get("/").text
    assert column(page) == ["main", "work"] and "aria-sort" not in page

    once = browser.client.get("/ui/" + href(page, "Agent")).text
    assert column(once) == ["main", "work"] and 'aria-sort="ascending"' in once
    twice = browser.client.get("/ui/" + href(once, "Agent")).text
    assert column(twice) == ["work", "main"] and 'aria-sort="descending"' in twice
    assert browser.get("/", sort="nothing").status_code == 400


def test_files_are_ordered_over_all_pages_and_their_filter_stays(browser: Browser, notes: Place) -> None:
    for number in range(120):
        notes.write(f"../main/memory/{number:03}.md", f"{'word ' * number} {number}")
    settings = notes.settings
    bring_up_to_date(settings, settings.agents["main"])

    first = browser.get("/files", agent="main", path="memory/", sort="-size").text
    second = browser.client.get("/ui/files" + href(first, "next →")).text

    shown = [*column(first), *column(second)]
    assert shown == [f"memory/{number:03}.md" for number in reversed(range(120))]
    assert "MEMORY.md" not in first and href(second, "← before")
    assert column(browser.get("/files", agent="main", sort="").text)[0] == "MEMORY.md"
