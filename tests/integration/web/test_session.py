"""Who may see and do what on the dashboard: login, cookies, forms."""

import re
import time

from memline.producers.api import auth
from memline.producers.web.dashboard import ACTIONS, FORM_COOKIE, SESSION_COOKIE, SESSION_S
from memline.producers.web.pages import PAGES
from memline.producers.web.rendering import path_of
from memline.shared.config.installation import Serve
from tests.integration.web.conftest import ALL, WORK
from tests.support.browser import Browser, text_of


def test_a_token_is_asked_for_once(opened):
    browser = opened(token=ALL)

    asked = browser.get("/search", q="invoices")
    assert asked.url.path == "/ui/login" and "cents" not in asked.text
    found = browser.log_in(ALL)

    assert found.url.path == "/ui/" and ALL not in found.text
    assert "cents" in browser.shows("/search", q="invoices")


def test_the_cookie_is_for_this_dashboard_alone_and_holds_no_token(opened):
    browser = opened(token=ALL)
    browser.client.follow_redirects = False

    (cookie,) = (
        text for text in browser.log_in(ALL).headers.get_list("set-cookie") if text.startswith(SESSION_COOKIE)
    )
    behind_proxy = browser.post("/login", token=ALL, origin=browser.url.replace("http:", "https:"))

    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/ui", f"max-age={SESSION_S}"} <= parts
    assert "secure" not in parts and ALL not in cookie
    assert "; Secure" in behind_proxy.headers["set-cookie"]


def test_a_login_outlives_a_restart_and_ends_with_the_token(opened):
    first = opened(token=ALL)
    first.log_in(ALL)
    cookie = first.client.cookies[SESSION_COOKIE]

    for token, page in ((ALL, "/ui/"), ("another-token", "/ui/login")):
        browser = opened(token=token)
        browser.client.cookies.set(SESSION_COOKIE, cookie, path="/ui")
        assert browser.get("/").url.path == page


def test_a_cookie_that_was_changed_or_is_too_old_opens_nothing(opened):
    browser = opened(token=ALL, tokens={"work": WORK})
    browser.log_in(ALL)
    end, signature = browser.client.cookies[SESSION_COOKIE].split(".")
    over = str(int(time.time()) - 5)
    signed = auth.Authenticator(Serve(token=ALL)).sign(over)

    for changed in (
        f"{int(end) + 9}.{signature}",
        f"{over}.{signed}",
        f"{end}.{'0' * 64}",
        end,
        "...",
        "\u00e9",
    ):
        browser.client.cookies.clear()
        answer = browser.client.get("/ui/", headers={"cookie": f"{SESSION_COOKIE}={changed}".encode()})
        assert answer.url.path == "/ui/login", changed


def test_wrong_tokens_are_said_and_limited(opened, caplog):
    browser = opened(token=ALL)
    for _ in range(auth.MAX_WRONG_TOKENS):
        answer = browser.log_in("wrong-token")
        assert answer.status_code == 401 and "not known" in text_of(answer)

    answer = browser.log_in("another-wrong-token")

    assert answer.status_code == 429 and "too many wrong tokens" in text_of(answer).lower()
    assert "wrong-token" not in caplog.text
    assert browser.log_in(ALL).url.path == "/ui/"


def test_every_page_is_shown_to_a_login_and_to_no_one_else(owner):
    with Browser(owner.url) as stranger:
        for page in PAGES:
            shown, refused = owner.get(page.path), stranger.get(page.path)

            assert shown.status_code in (200, 404), (page.path, text_of(shown))
            assert refused.url.path == "/ui/login", page.path
            for answer in (shown, refused):
                policy = answer.headers["content-security-policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), page.path
                assert "unsafe" not in policy and "frame-ancestors 'none'" in policy, page.path
                assert answer.headers["x-content-type-options"] == "nosniff", page.path
                assert answer.headers["cache-control"] == "no-store", page.path
                # Nothing inline: the policy would hide it.
                inline = r"<script(?! src=\"/ui/static/)|<style|\sstyle=|\son\w+="
                assert not re.search(inline, answer.text), page.path


def test_the_token_of_an_agent_does_not_open_the_dashboard(opened):
    browser = opened(token=ALL, tokens={"work": WORK})

    answer = browser.log_in(WORK)

    assert answer.status_code == 401 and "log in with serve.token" in text_of(answer)
    assert browser.get("/").url.path == "/ui/login"


#: Where the form of each action is sent to.
SENT_TO = [path_of(name) for name in ACTIONS]


def test_an_action_needs_a_form_of_ours(opened):
    browser = opened(token=ALL, blocks={"queue": {"url": "redis://127.0.0.1:1/0"}})
    browser.log_in(ALL)
    ours = {"origin": browser.url}

    for path in SENT_TO:
        mine = {"form_token": browser.form_token()}
        for fields, headers in (
            (mine, {"origin": "https://evil.example"}),
            (mine, {"origin": "null"}),
            (mine, {"sec-fetch-site": "same-site"}),
            ({"form_token": "0" * 36}, ours),
            ({"form_token": ""}, ours),
        ):
            answer = browser.client.post(f"/ui{path}", data=fields, headers=headers)
            assert answer.status_code == 403, (path, fields, headers)
        assert browser.client.post(f"/ui{path}", json=mine, headers=ours).status_code == 400, path
        browser.client.cookies.delete(FORM_COOKIE)
        assert browser.client.post(f"/ui{path}", data=mine, headers=ours).status_code == 403, path
        with Browser(browser.url) as stranger:
            assert stranger.post(path).url.path == "/ui/login", path
