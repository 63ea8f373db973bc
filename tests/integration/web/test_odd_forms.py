"""Forms with missing and odd fields: a page says what is wrong, never a 500."""

from urllib.parse import urlencode

import pytest

from memline.producers.web.dashboard import ACTIONS
from tests.integration.web.conftest import Opener

#: Values that no page of ours sends, as they stand in a form.
ODD = ("", "-1", "9" * 400, "a%00b", "%ED%A0%BD", "%", "..%2F..")

#: Fields that the forms have in common.
FRAME = ("agent", "next", "once")


@pytest.mark.parametrize("queue", [{}, {"queue": {"url": "redis://127.0.0.1:1/0"}}], ids=["alone", "fleet"])
def test_no_form_fails_on_missing_or_odd_fields(opened: Opener, queue: dict[str, dict[str, str]]) -> None:
    browser = opened(blocks=queue)
    headers = {"origin": browser.url, "content-type": "application/x-www-form-urlencoded"}
    token = urlencode({"form_token": browser.form_token()})
    failed = []

    for action in ACTIONS:
        names = (*(each.name for each in action.call.takes_json), *FRAME)
        fields = ["", "agent=main", *(f"agent=main&{name}={text}" for name in names for text in ODD)]
        for text in [*fields, *(f"{each}&ask=1" for each in fields if action.call.is_danger)]:
            answer = browser.client.post(
                f"/ui{action.path}", content=f"{token}&{text}", headers=headers, follow_redirects=False
            )
            if answer.status_code == 500:
                failed.append((action.path, text[:60]))

    assert failed == []
