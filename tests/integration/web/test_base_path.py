"""Below a path of a host, behind a real nginx with the lines of docs/http.md: `serve.basePath`."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from memline.producers.web.session import FORM_COOKIE, SESSION_COOKIE
from tests.integration.web.conftest import ALL, Opener
from tests.support.browser import Browser, text_of
from tests.support.nginx import proxying
from tests.support.workspace import Place, until

BASE = "/memory"
PAGE = Path(__file__).parents[3] / "docs" / "http.md"

#: What leads somewhere on a page.
ADDRESSES = re.compile(r'\s(?:href|src|action|formaction|data-events|data-shared)="([^"]*)"')
LINKS = re.compile(r'<(?:a|link|script)\s[^>]*(?:href|src)="([^"]*)"')


@pytest.fixture
def proxied(opened: Opener, tmp_path: Path) -> Iterator[Browser]:
    """A browser that sees the server through nginx alone."""
    server = urlsplit(opened(token=ALL, basePath=BASE + "/").url)
    (lines,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert lines.count("127.0.0.1:7843") == 1
    with proxying(tmp_path / "nginx", lines.replace("127.0.0.1:7843", server.netloc)) as origin:
        browser = Browser(origin + BASE)
        # Of a page is its origin alone.
        browser.client.event_hooks["request"] = [lambda request: _name_origin(request, origin)]
        with browser:
            yield browser


def _name_origin(request: httpx.Request, origin: str) -> None:
    if "origin" in request.headers:
        request.headers["origin"] = origin


def bearer() -> dict[str, str]:
    return {"authorization": f"Bearer {ALL}"}


def test_every_link_of_every_page_leads_below_the_path(proxied: Browser, notes: Place) -> None:
    notes.write("../main/memory/a.md", "# Ann\n\nSee [[Bob]], who pays invoices.\n")
    notes.write("../main/memory/b.md", "# Bob\n\nHe pays invoices.\n")
    home = proxied.log_in(ALL)
    assert home.status_code == 200 and home.url.path == f"{BASE}/ui/"
    waiting, seen = [str(home.url), f"{proxied.url}/ui/search?q=invoices"], set[str]()
    until(lambda: "Ann" in text_of(proxied.get("/search", q="Ann", agent="main")), "the notes")

    while waiting:
        here = waiting.pop().partition("#")[0]
        if here in seen:
            continue
        seen.add(here)
        answer = proxied.client.get(here)
        assert answer.status_code == 200, f"{here}: {text_of(answer)}"
        if answer.headers["content-type"].startswith("text/html"):
            for found in ADDRESSES.findall(answer.text):
                is_ours = found.startswith((f"{BASE}/ui/", "?", "#")) or not found
                assert is_ours and not found.startswith(f"{BASE}/ui{BASE}"), f"{here}: {found}"
            waiting += [urljoin(here, unescape(found)) for found in LINKS.findall(answer.text)]

    paths = {urlsplit(each).path for each in seen}
    assert {f"{BASE}/ui{name}" for name in ("/search", "/note", "/file", "/files", "/agents")} <= paths
    assert "Links to" in text_of(proxied.get("/note", agent="main", path="memory/a.md"))
    assert any(path.endswith(".css") for path in paths) and any(path.endswith(".js") for path in paths)


def test_cookies_forms_and_redirects_have_the_path(proxied: Browser) -> None:
    asked = proxied.get("/search", q="invoices")
    assert asked.url.path == f"{BASE}/ui/login"
    found = re.search(r'name="next" value="([^"]*)"', asked.text)
    assert found
    shown = proxied.log_in(ALL, next=found[1])
    paths = {each.name: each.path for each in proxied.client.cookies.jar}
    done = proxied.post("/index", agent="main", next="/ui/agents")

    assert shown.url.path == f"{BASE}/ui/search" and "cents" in text_of(shown)
    assert paths == {SESSION_COOKIE: f"{BASE}/ui", FORM_COOKIE: f"{BASE}/ui"}
    assert done.url.path == f"{BASE}/ui/agents" and "is being indexed" in text_of(done)
    assert proxied.post("/logout").url.path == f"{BASE}/ui/login"
    assert proxied.get("/").url.path == f"{BASE}/ui/login"
    assert SESSION_COOKIE not in proxied.client.cookies


def test_the_stream_of_events_comes_through(proxied: Browser) -> None:
    proxied.log_in(ALL)

    with proxied.client.stream("GET", "/ui/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        # Sent before the stream ends, which takes minutes.
        assert next(line for line in lines if line.startswith("data:"))


def test_calls_and_mcp_and_their_description_are_below_the_path(proxied: Browser) -> None:
    client, message = proxied.client, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {**bearer(), "accept": "application/json, text/event-stream"}

    hits = client.get("/search", params={"query": "cents"}, headers=bearer()).json()["results"]
    tools = client.post("/mcp", json=message, headers=headers).json()["result"]["tools"]
    outside = httpx.get(proxied.url.removesuffix(BASE) + "/search", timeout=120)

    assert [hit["path"] for hit in hits] == ["MEMORY.md"]
    assert "memory_search" in [tool["name"] for tool in tools]
    assert client.get("/openapi.json").json()["servers"] == [{"url": BASE}]
    assert client.get("/").url.path == f"{BASE}/ui/login"
    assert httpx.get(proxied.url, timeout=120, follow_redirects=True).url.path == f"{BASE}/ui/login"
    # nginx itself: nothing of the host but the path leads here.
    assert outside.status_code == 404 and "nginx" in outside.text


def test_an_unknown_address_below_the_path_is_answered_as_asked(proxied: Browser) -> None:
    proxied.log_in(ALL)

    page = proxied.client.get("/ui/none", headers={"accept": "text/html"})
    answer = proxied.client.get("/none", headers={**bearer(), "accept": "application/json"})

    assert page.status_code == answer.status_code == 404
    assert f'href="{BASE}/ui/' in page.text and set(answer.json()) == {"error", "hint"}


def test_an_address_without_the_path_is_answered_for_probes(opened: Opener) -> None:
    browser = opened(basePath=BASE)

    assert browser.client.get("/health").json()["status"] == "ok"
    assert browser.client.get(f"{BASE}/health").json()["status"] == "ok"
    assert browser.client.get(f"{BASE}x/health").status_code == 404
