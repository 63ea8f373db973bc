"""A browser without script, for tests of the dashboard: cookies, redirects, forms."""

from __future__ import annotations

import html
import re

import httpx


class Browser:
    """One browser at one server; a context manager."""

    def __init__(self, url):
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=120, follow_redirects=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def get(self, path, /, **query):
        """Open a page below `/ui`."""
        return self.client.get(f"/ui{path}", params=query or None)

    def shows(self, path, /, **query):
        """Return what a page says, as a reader sees it: without tags. Fails when it cannot be shown."""
        answer = self.get(path, **query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {text_of(answer)}"
        return text_of(answer)

    def post(self, path, /, *, origin=None, **fields):
        """Send a form of ours, with its double-submit token, as a page of this origin would."""
        fields = {"form_token": self.form_token(), **fields}
        headers = {"origin": self.url if origin is None else origin}
        return self.client.post(f"/ui{path}", data=fields, headers=headers)

    def press(self, path, label, **query):
        """Open a page and press the first button that says this, as its form stands there."""
        page = self.get(path, **query)
        forms = re.findall(r'<form[^>]* method="post" action="/ui([^"]+)">(.*?)</form>', page.text, re.DOTALL)
        button = re.compile(rf"<button[^>]*>{re.escape(label)}</button>")
        target, form = next(each for each in forms if button.search(each[1]))
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
        for name, first in re.findall(r'<select name="(\w+)">\s*<option(?: value="([^"]*)")?', form):
            fields[name] = first or re.findall(r"<option[^>]*>([^<]+)<", form)[-1]
        return self.post(target, **{each: html.unescape(text) for each, text in fields.items()})

    def form_token(self):
        if "memline_form" not in self.client.cookies:
            self.get("/login")
        return self.client.cookies["memline_form"]

    def log_in(self, token, **fields):
        return self.post("/login", token=token, **fields)


def text_of(answer):
    """Return the words of a page, tags removed, entities resolved, spaces joined."""
    body = answer.text.partition("<main")[2] or answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
