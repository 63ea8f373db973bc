"""A process works with the settings of its start, and says when its configuration was changed since."""

import json
import re

import pytest

from tests.support.process import end, running_memline
from tests.support.workspace import until


def report(place):
    (found,) = place.call("status", "--json").json
    return dict(found)


def findings_of(place, code):
    return [each for each in report(place)["findings"] if each["code"] == code]


def test_a_process_that_started_before_its_configuration_changed_is_named(place):
    place.write("memory/a.md", "# A\n")
    with running_memline(*place.arguments("up")) as process:
        until(lambda: bool(report(place)["processes"]), "its start")
        assert findings_of(place, "old_settings") == []

        place.configure(query={"maxResults": 3})
        (found,) = findings_of(place, "old_settings")
        end(process)

    assert f"memline up (process {process.pid})" in found["what"]
    assert str(place.config) in found["what"] and "start it again" in found["action"]
    assert findings_of(place, "old_settings") == []


@pytest.mark.place(server={}, notes=3)
def test_a_changed_model_is_told_with_its_price_before_the_first_request(place, server):
    place.index()
    texts = place.vector_states()["ready"]
    # The provider holds its answers: what is told was known before any came.
    server.control({"fault": "hang", "clear_log": True})
    place.configure(model="other")
    content = json.loads(place.config.read_text())
    place.config.write_text(json.dumps(content | {"prices": {"other": {"perMillion": 1_000}}}))

    with running_memline(*place.arguments("up")) as process:
        until(lambda: bool(server.requests), "the first request")
        (told,) = findings_of(place, "model_differs")
        end(process)

    first = server.requests[0]
    assert first.body["model"] == "other"
    tokens = int(re.search(r"([\d,]+) tokens", told["what"])[1].replace(",", ""))  # type: ignore[index]
    assert f"the model changes to openai other: {texts} texts to embed, " in told["what"]
    assert tokens > 0 and told["what"].endswith(f"about ${tokens / 1_000:,.4f}")
