"""A process works with the settings of its start, and says when its configuration was changed since."""

from memline.shared.index.hold import has_follower
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
        until(lambda: has_follower(place.index_path), "its start")
        assert findings_of(place, "old_settings") == []

        place.configure(query={"maxResults": 3})
        (found,) = findings_of(place, "old_settings")
        end(process)

    assert f"memline up (process {process.pid})" in found["what"]
    assert str(place.config) in found["what"] and "start it again" in found["action"]
    assert findings_of(place, "old_settings") == []


def test_a_process_goes_on_while_its_configuration_is_away(place):
    place.write("memory/a.md", "# A\n")
    place.index()
    with running_memline(*place.arguments("up")) as process:
        until(lambda: has_follower(place.index_path), "its start")
        away = place.config.rename(place.folder / "away.json5")

        place.write("memory/new.md", "A xyzzy.\n")
        until(lambda: place.rows("SELECT 1 FROM files WHERE path = 'memory/new.md'") == [(1,)], "a note")
        away.rename(place.config)
        assert findings_of(place, "old_settings") == []
        end(process)

    assert process.returncode == 0
