"""Every page of the dashboard, as a browser shows it: narrow and wide, light and dark, by keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from memline.producers.web.dashboard import SESSION_COOKIE
from memline.producers.web.pages import PAGES
from tests.browser.conftest import HOSTILE
from tests.support.http_api import serving

#: The pages, and one with what a user would ask.
ADDRESSES = [f"/ui{page.path}" for page in PAGES]
ADDRESSES += ["/ui/search?q=invoices+cents", "/ui/search?q=%3Cscript%3Ewindow.owned%3D1%3C/script%3E"]

#: Minutes, so that a loaded machine fails none.
WAIT_MS = 120_000

#: What is wrong for somebody who reads a page by ear, or with a keyboard; and what of it colours decide.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]


def barriers(page, rules):
    """What is wrong with a page by these rules."""
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in Axe().run(page, options=options).response["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_whole_and_can_be_read_by_everybody(opened, world, width):
    page = opened(width=width)
    found = {}
    world.make_job(*HOSTILE)
    for address in ADDRESSES:
        page.emulate_media(color_scheme="light")
        page.goto(address)
        page.wait_for_load_state("load")
        problems = barriers(page, RULES)
        wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
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


def test_hostile_notes_and_errors_are_shown_as_they_are_written(opened):
    page = opened()
    page.goto("/ui/search?q=invoices+cents")

    assert "<script>window.owned = 1</script>" in page.inner_text("main")
    assert page.locator("main script, main img, main svg[onload]").count() == 0
    assert page.evaluate("window.owned") is None


def test_a_question_is_asked_with_the_keyboard_alone(opened):
    page = opened()
    page.goto("/ui/")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to(page, "nav a:text-is('Search')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/search*")
    tab_to(page, "main input[name=q]")
    page.keyboard.type("invoices cents")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=invoices*")

    assert "Invoices are whole cents." in page.inner_text("main")


def tab_to(page, selector):
    """Press Tab until the element has the focus, as somebody without a mouse does."""
    wanted = page.locator(selector).first.element_handle()
    for _ in range(120):
        if page.evaluate("wanted => document.activeElement === wanted", wanted):
            # And it is seen that it has.
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no number of tabs leads to {selector}")


def test_a_number_follows_what_changes_without_a_reload(opened, world):
    page = opened()
    page.goto("/ui/")
    figure = "dl.tiles dd >> nth=0"
    expect(page.locator(figure)).to_have_text("3 0 behind", timeout=WAIT_MS)
    page.evaluate("window.same = true")

    world.write("memory/new.md", "An umbrella.\n")

    expect(page.locator(figure)).to_have_text("3 1 behind", timeout=WAIT_MS)
    assert page.evaluate("window.same")
    (world.notes / "memory" / "new.md").unlink()


def test_everything_works_without_script(opened):
    page = opened(script=False, width=390)
    page.goto("/ui/")
    page.locator("nav a:text-is('Search')").click()
    page.locator("main input[name=q]").fill("invoices cents")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=invoices*")

    assert "Invoices are whole cents." in page.inner_text("main")


def test_the_token_is_in_no_storage_no_address_and_no_cookie_of_a_script(opened, world):
    loaded = world.configure(token="secret-token")
    with serving(loaded) as url:
        page = opened(url=url)
        page.goto("/ui/search?q=cents")
        page.locator("input[type=password]").fill("secret-token")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/")
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        cookies = {each["name"]: each for each in page.context.cookies()}

    assert "secret-token" not in stored + page.url + str(cookies)
    session = cookies[SESSION_COOKIE]
    assert (session["httpOnly"], session["sameSite"], session["path"]) == (True, "Strict", "/ui")
    assert SESSION_COOKIE not in stored
