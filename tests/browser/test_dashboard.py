"""Every page of the dashboard, as a browser shows it: narrow and wide, light and dark, by keyboard alone."""

import re
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from memline.producers.web.dashboard import PAGES
from memline.producers.web.event_stream import EventStream
from memline.producers.web.session import SESSION_COOKIE
from tests.browser.conftest import HOSTILE, HOSTILE_NAME, Opener, World
from tests.support.http_api import serving

#: Those that the navigation leads to, and some with what a user would ask.
ADDRESSES = [f"/ui{page.path}" for page in PAGES if page.group]
ADDRESSES += [
    "/ui/search?q=invoices+cents&explain=1",
    "/ui/search?q=%3Cscript%3Ewindow.owned%3D1%3C/script%3E",
]
ADDRESSES += ["/ui/charts?span=month", "/ui/messages?select=all"]
ADDRESSES += [f"/ui/batches/{'b' * 32}", "/ui/jobs?sort=-age", "/ui/files?sort=size"]
ADDRESSES += ["/ui/note?path=MEMORY.md&from=5&lines=2", f"/ui/note?path=memory/{quote(HOSTILE_NAME)}"]

#: Minutes, so that a loaded machine fails none.
WAIT_MS = 120_000

#: What is wrong for somebody who reads a page by ear, or with a keyboard; and what of it colours decide.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]


_HIGHEST_ROW = """() => Math.max(0, ...[...document.querySelectorAll('table.cards tbody tr')]
    .map(row => row.getBoundingClientRect().height))"""


def barriers(page: Page, rules: list[str]) -> list[str]:
    """What is wrong with a page by these rules."""
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in Axe().run(page, options=options).response["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_whole_and_can_be_read_by_everybody(opened: Opener, world: World, width: int) -> None:
    page = opened(width=width)
    found: dict[str, list[str]] = {}
    for address in (*ADDRESSES, f"/ui/jobs/{world.make_job(*HOSTILE)}"):
        page.emulate_media(color_scheme="light")
        page.goto(address)
        page.wait_for_load_state("load")
        problems = barriers(page, RULES)
        wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        # On a phone a row is two lines: at 24 px each, with what is around them.
        high = page.evaluate(_HIGHEST_ROW) if width == 390 else 0
        if high > 75:
            problems.append(f"a row is {high} pixels high")
        if wide > 0:
            problems.append(f"{wide} pixels wider than the window")
        # The other colours at once, without a transition to them.
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        problems += barriers(page, OF_COLOURS)
        if page.evaluate("window.owned"):
            problems.append("a text was run")
        if problems:
            found[address] = problems
    world.cancel_jobs()

    assert found == {}


def test_a_chart_says_the_value_under_the_pointer(opened: Opener) -> None:
    page = opened()
    page.goto("/ui/charts")
    chart = page.locator("figure.chart", has_text="Vectors wanted")
    assert chart.locator(".at").inner_text() == ""

    box = chart.locator("svg").bounding_box()
    assert box is not None
    # The last point, at the right end of the axis, is what is now.
    page.mouse.move(box["x"] + box["width"] * 474 / 480, box["y"] + box["height"] / 2)

    last = chart.locator("figcaption b").inner_text()
    expect(chart.locator(".at")).to_have_text(
        re.compile(rf"^\d\d-\d\d \d\d:\d\d:\d\d: {last}$"), timeout=WAIT_MS
    )
    page.mouse.move(0, 0)
    expect(chart.locator(".at")).to_have_text("", timeout=WAIT_MS)


def test_hostile_notes_and_errors_are_shown_as_they_are_written(opened: Opener) -> None:
    page = opened()
    page.goto("/ui/note?path=MEMORY.md")

    assert "<script>window.owned = 1</script>" in page.inner_text("main")
    assert page.locator("main script, main img, main svg[onload]").count() == 0
    assert page.evaluate("window.owned") is None


def test_a_question_is_asked_and_its_note_opened_with_the_keyboard_alone(opened: Opener) -> None:
    page = opened()
    page.goto("/ui/")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to(page, "nav.wide a:text-is('Search')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/search*")
    tab_to(page, "main input[name=q]")
    page.keyboard.type("invoices cents")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=invoices*")
    tab_to(page, "main a[href*='/ui/note']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/note*")

    assert "Invoices are whole cents." in page.inner_text("tr.asked >> nth=2")


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus, as somebody without a mouse does."""
    wanted = page.locator(selector).first.element_handle()
    for _ in range(120):
        if page.evaluate("wanted => document.activeElement === wanted", wanted):
            # And it is seen that it has.
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no number of tabs leads to {selector}")


def test_a_number_follows_what_changes_without_a_reload(opened: Opener, world: World) -> None:
    page = opened()
    page.goto("/ui/")
    figure = "[data-figure=files_behind]"
    expect(page.locator(figure)).to_have_text("0", timeout=WAIT_MS)
    page.evaluate("window.same = true")

    world.write("memory/new.md", "An umbrella.\n")

    expect(page.locator(figure)).to_have_text("1", timeout=WAIT_MS)
    assert page.evaluate("window.same")
    (world.notes / "memory" / "new.md").unlink()


def test_a_list_says_that_it_is_paused_while_something_is_chosen(opened: Opener) -> None:
    page = opened()
    page.goto("/ui/messages")
    page.locator("[data-select]").click()
    expect(page.locator("[data-frozen]")).to_contain_text("Paused while 6 are chosen.", timeout=WAIT_MS)
    page.locator("input[name=message]").first.uncheck()
    expect(page.locator("[data-frozen]")).to_contain_text("Paused while 5 are chosen.", timeout=WAIT_MS)

    page.locator("[data-frozen] button").click()

    expect(page.locator("[data-frozen]")).to_have_count(0, timeout=WAIT_MS)
    assert page.locator("input[name=message]:checked").count() == 0


def test_a_page_that_lost_its_stream_asks_for_its_parts_when_it_is_back(opened: Opener) -> None:
    page = opened()
    page.goto("/ui/messages")
    expect(page.locator("[data-live]")).to_have_text("live", timeout=WAIT_MS)
    asked = list[str]()
    page.on("request", lambda sent: asked.append(sent.headers.get("memline-fragment", "")))
    parts = page.eval_on_selector_all("[data-fragment]", "parts => parts.map(part => part.dataset.fragment)")

    with page.expect_response(lambda answer: answer.request.headers.get("memline-fragment") == parts[-1]):
        page.evaluate("take({isOpen: false}); take({isOpen: true})")

    assert {*parts} <= {*asked}


def test_ten_pages_of_a_browser_all_load_and_share_one_stream(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, streams = EventStream.told, list[str]()

    def counted(self: EventStream, only: str, *others: Callable[[], bool]) -> AsyncIterator[str]:
        streams.append(only)
        return told(self, only, *others)

    monkeypatch.setattr(EventStream, "told", counted)
    first = opened()
    pages = [first, *(first.context.new_page() for _ in range(9))]

    for page, address in zip(pages, ADDRESSES, strict=False):
        page.goto(address, timeout=WAIT_MS)

    for page in pages:
        expect(page.locator("[data-live]")).to_have_text("live", timeout=WAIT_MS)
    assert len(streams) == 1


def test_everything_works_without_script(opened: Opener) -> None:
    page = opened(script=False, width=390)
    page.goto("/ui/")
    page.locator("details.narrow summary").click()
    page.locator("details.narrow a:text-is('Search')").click()
    page.locator("main input[name=q]").fill("invoices cents")
    page.keyboard.press("Enter")

    page.locator("main a[href*='/ui/note']").first.click()

    assert "Invoices are whole cents." in page.inner_text("main")


def test_the_token_is_in_no_storage_no_address_and_no_cookie_of_a_script(
    opened: Opener, world: World
) -> None:
    loaded = world.configure(token="secret-token")
    with serving(loaded.settings, loaded=loaded) as url:
        page = opened(url=url)
        page.goto("/ui/search?q=cents")
        page.locator("input[type=password]").fill("secret-token")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/search?q=cents")
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        cookies = {each["name"]: each for each in page.context.cookies()}

    assert "secret-token" not in stored + page.url + str(cookies)
    session = cookies[SESSION_COOKIE]
    assert (session["httpOnly"], session["sameSite"], session["path"]) == (True, "Strict", "/ui")
    assert SESSION_COOKIE not in stored


_LINES = """() => {
    const shown = [...document.querySelectorAll('.brand, nav.wide > ul > li, .who > *')]
        .map(each => each.getBoundingClientRect()).filter(box => box.height);
    return [Math.max(...shown.map(box => box.top)), Math.min(...shown.map(box => box.bottom)), shown.length];
}"""


@pytest.mark.parametrize("script", [True, False])
def test_the_header_is_one_line_with_a_token_and_leads_to_every_page(
    opened: Opener, world: World, script: bool
) -> None:
    token = {"name": "anna-from-operations", "token": "t" * 20, "role": "owner"}
    loaded = world.configure(tokens=[token, {"name": "r", "token": "u" * 20, "role": "reader"}])
    with serving(loaded.settings, loaded=loaded) as url:
        for secret in ("t" * 20, "u" * 20):
            page = opened(url=url, script=script)
            page.goto("/ui/login")
            page.locator("input[type=password]").fill(secret)
            page.keyboard.press("Enter")
            page.wait_for_url("**/ui/")
            if script:
                expect(page.locator("[data-live]")).to_have_text("live", timeout=WAIT_MS)
            top, bottom, count = page.evaluate(_LINES)
            assert top < bottom and count > 9, f"{secret[0]}: the header is more than one line"
        for wanted in (each for each in PAGES if each.group):
            page.goto("/ui/")
            link = page.locator(f"nav.wide a[href='/ui{wanted.path}']")
            if not link.is_visible():
                page.locator("nav.wide summary", has_text=wanted.group).click()
            link.click()
            expect(page.locator("h1")).to_have_text(wanted.title, timeout=WAIT_MS)
            assert page.locator("nav.wide [aria-current=page]").inner_text() in ("", wanted.title)
