"""Each process of a home shows a digest of the settings that it has."""

import stat

from tests.support.process import end, running_memline
from tests.support.workspace import Place, until


def digests(place: Place) -> dict[str, str | None]:
    """Kind of each process -> its digest."""
    (report,) = place.call("status", "--json").json
    return {each["kind"]: each["settings"] for each in report["processes"]}


def test_processes_with_the_same_settings_have_the_same_digest_and_a_change_is_seen(place: Place) -> None:
    place.write("memory/a.md", "# A\n")
    with running_memline(*place.arguments("up")) as first:
        until(lambda: bool(digests(place).get("up")), "a digest")
        before = digests(place)["up"]
        end(first)
    with running_memline(*place.arguments("up")) as second:
        until(lambda: bool(digests(place).get("up")), "a digest of the next")
        again = digests(place)["up"]
        place.configure(query={"maxResults": 3})
        until(lambda: digests(place).get("up") not in (None, again), "that the change is taken")
        end(second)

    assert before == again
    assert before is not None and len(before) == 12 and int(before, 16) >= 0
    (key,) = place.home.glob(".settings-key*")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
