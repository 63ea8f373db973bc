"""When qmd is updated, by whom, and with what."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memline.producers.bridges.qmd.home import QmdFailed
from memline.producers.bridges.qmd.updates import QmdUpdates, Updater, listed_names
from memline.shared.clock import ManualClock
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import until
from tests.unit.bridges.qmd.conftest import Place

#: A secret as a transcript may hold one.
KEY = "sk-proj-abcdefghijklmnop1234567890"


@pytest.fixture
def made(place: Place) -> Iterator[Callable[..., Updater]]:
    opened: list[Updater] = []

    def made(*, clock: ManualClock | None = None, **qmd: object) -> Updater:
        opened.append(Updater(place.agent(**qmd), clock=clock))
        return opened[-1]

    yield made
    for updater in opened:
        updater.close()


def commands(place: Place) -> list[str]:
    return [" ".join(call["args"][:2]) for call in place.qmd.calls()]


def test_the_first_update_makes_the_collections(place: Place, made: Callable[..., Updater]) -> None:
    updater = made()

    assert updater.run()

    assert commands(place) == ["collection list", "collection add", "collection add", "update"]
    assert place.qmd.calls()[1]["args"] == [
        *("collection", "add", str(place.notes), "--name", "memory-root-main", "--mask", "MEMORY.md")
    ]
    assert sorted(updater.state["collections"]) == ["memory-dir-main", "memory-root-main"]
    assert (updater.state["files"], updater.behind()) == (2, 0)


def test_later_ones_change_only_the_collections_that_changed(
    place: Place, made: Callable[..., Updater]
) -> None:
    made(paths=[{"path": "../notes/memory", "name": "x", "pattern": "*.md"}]).run(forced=True)
    before = len(place.qmd.calls())

    made(
        paths=[{"path": "../notes/memory", "name": "x", "pattern": "2026*.md"}], includeDefaultMemory=False
    ).run(forced=True)

    assert sorted(
        " ".join(call["args"][:3]) for call in place.qmd.calls()[before:] if "list" not in call["args"]
    ) == [
        f"collection add {place.notes / 'memory'}",
        "collection remove memory-dir-main",
        "collection remove memory-root-main",
        "collection remove x-main",
        "update",
    ]


def test_a_collection_that_exists_already_is_no_failure(place: Place, made: Callable[..., Updater]) -> None:
    place.qmd.does(collection={"python": "if args[1] == 'add': sys.exit('Collection already exists.')"})

    assert made().run()


def test_names_are_read_from_every_form_of_the_list() -> None:
    prose = "Collections (2):\n\na-main (qmd://a-main/)\n  Pattern:  *.md\n\nb (qmd://b/) [excluded]\n"

    assert listed_names('["a", {"name": "b"}, 3]') == {"a", "b"}
    assert listed_names(prose) == {"a-main", "b"}
    assert listed_names("No collections found. Run 'qmd collection add .' to create one.") == set()


def test_two_processes_never_update_at_once(place: Place, made: Callable[..., Updater]) -> None:
    updater = made()
    updater.home.make()
    other = os.open(updater.home.folder / "update.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)

    assert not updater.run()
    forced = threading.Thread(target=updater.run, kwargs={"forced": True})
    forced.start()
    assert place.qmd.calls() == []
    os.close(other)
    forced.join(120)

    assert len(place.qmd.calls("update")) == 1


def test_the_lock_lasts_as_long_as_the_program(
    place: Place, made: Callable[..., Updater], tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    held = "[os.path.realpath(f'/proc/self/fd/{each}') for each in os.listdir('/proc/self/fd')]"
    place.qmd.does(
        update={
            "python": f"open({str(begun)!r}, 'w').write('\\n'.join({held}))\n"
            f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
        }
    )
    updater = made()
    updater.start()
    until(begun.exists)

    # So it is held even when this process is killed.
    until(lambda: "update.lock" in begun.read_text())
    assert not made().run()
    go_on.touch()
    updater.wait()

    assert made().run(forced=True)


def test_one_that_was_just_done_is_not_done_again_unless_forced(
    place: Place, made: Callable[..., Updater]
) -> None:
    clock = ManualClock()
    updater = made(clock=clock, update={"debounceMs": 15_000})
    assert updater.run()

    clock.advance(14)
    assert not updater.run() and not updater.due(changed=True)
    assert updater.run(forced=True)
    clock.advance(15)
    assert updater.due(changed=True) and not updater.due()
    assert updater.run()
    clock.advance(300)
    assert updater.due()


def test_forced_ones_wait_for_the_one_that_runs(
    place: Place, made: Callable[..., Updater], tmp_path: Path
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    wait = f"open({str(begun)!r}, 'w')\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    place.qmd.does(update={"python": wait})
    updater = made()
    assert updater.start()
    until(begun.exists)

    assert not updater.start()
    assert updater.start(forced=True) and updater.start(forced=True)
    go_on.touch()
    updater.wait()

    assert len(place.qmd.calls("update")) == 2


def test_what_runs_ends_with_the_process(place: Place, made: Callable[..., Updater], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    place.qmd.does(update={"python": f"open({str(begun)!r}, 'w')\ntime.sleep(600)"})
    updater = made()
    updater.start()
    until(begun.exists)

    updater.close()

    assert not updater.start()


def test_a_failed_update_is_kept_with_its_reason(place: Place, made: Callable[..., Updater]) -> None:
    place.qmd.does(update={"stderr": "SQLITE_BUSY", "status": 1})
    updater = made()

    with pytest.raises(QmdFailed, match=r"qmd update failed \(code 1\): SQLITE_BUSY"):
        updater.run()

    assert "SQLITE_BUSY" in updater.state["error"] and "updatedAt" not in updater.state
    place.qmd.does(update={})
    assert updater.run() and not updater.state["error"]


@pytest.mark.parametrize(("mode", "embeds"), [("search", 0), ("vsearch", 1), ("query", 1)])
def test_vectors_are_made_beside_it_for_modes_that_need_them(
    place: Place, made: Callable[..., Updater], mode: str, embeds: int
) -> None:
    updater = made(searchMode=mode)

    updater.start()
    updater.wait()
    until(lambda: len(place.qmd.calls("embed")) == embeds)
    updater.close()

    assert "embed.json" in os.listdir(updater.home.folder) or not embeds


def test_vectors_are_made_again_after_their_interval_and_later_after_failures(
    place: Place, made: Callable[..., Updater]
) -> None:
    clock = ManualClock()
    updater = made(clock=clock, searchMode="query", update={"embedInterval": "10m"})

    def embeds() -> int:
        updater.embed()
        return len(place.qmd.calls("embed"))

    updater.home.make()
    assert [embeds(), embeds()] == [1, 1]
    clock.advance(600)
    place.qmd.does(embed={"status": 1, "stderr": "no model"})
    assert [embeds(), embeds()] == [2, 2]
    assert "no model" in updater.home.read("embed.json")["error"]
    clock.advance(60)
    assert [embeds(), embeds()] == [3, 3]
    clock.advance(60)
    assert embeds() == 3
    clock.advance(60)
    assert embeds() == 4


def test_sessions_are_exported_without_secrets_and_for_as_long_as_they_are_kept(
    place: Place, made: Callable[..., Updater], home: Path
) -> None:
    sessions = sessions_folder(home / ".openclaw")
    new, old = sessions / "new.jsonl", sessions / "old.jsonl"
    new.write_text(opening() + said("user", f"the key is {KEY}") + said("assistant", "I keep it"))
    old.write_text(opening() + said("user", "long ago"))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    updater = made(sessions={"enabled": True})
    exports = updater.home.exports

    updater.run()
    assert sorted(each.name for each in exports.iterdir()) == ["new.md", "old.md"]
    (exports / "mine.md").write_text("not an export")
    text = (exports / "new.md").read_text()
    assert text.startswith("# Session new\n\n") and "I keep it" in text and KEY not in text
    assert (exports / "new.md").stat().st_mode & 0o777 == 0o600

    made(sessions={"enabled": True, "retentionDays": 30}).run(forced=True)
    assert sorted(each.name for each in exports.iterdir()) == ["mine.md", "new.md"]
    new.write_text(opening())
    updater.run(forced=True)
    assert (exports / "new.md").read_text() == "# Session new\n\n(empty)\n"
    assert "sessions-main" in updater.state["collections"]


def test_notes_that_changed_since_are_counted(place: Place, made: Callable[..., Updater]) -> None:
    updater = made()
    updater.run()

    (place.notes / "memory" / "new.md").write_text("x")
    assert updater.behind() == 1
    updater.run(forced=True)
    (place.notes / "memory" / "new.md").unlink()

    assert updater.behind() == 1


def test_a_loop_updates_at_the_start_after_changes_and_by_the_interval(place: Place) -> None:
    clock, settings = ManualClock(), place.agent()
    with QmdUpdates([settings], make=lambda each: Updater(each, clock=clock)) as updates:
        updater = updates._updaters["main"]

        def updated() -> int:
            updates.tick()
            updater.wait()
            return len(place.qmd.calls("update"))

        updater.wait()
        assert updated() == 1
        updates.changed(settings)
        assert updated() == 1
        clock.advance(15)
        assert updated() == 2
        clock.advance(299)
        assert updated() == 2
        clock.advance(1)
        assert updated() == 3


def test_without_on_boot_a_loop_begins_with_the_interval(place: Place) -> None:
    clock, settings = ManualClock(), place.agent(update={"onBoot": False, "interval": "1h"})
    with QmdUpdates([settings], make=lambda each: Updater(each, clock=clock)) as updates:
        updates.tick()
        updates._updaters["main"].wait()
        assert place.qmd.calls() == []
        clock.advance(3_600)
        updates.tick()
        updates._updaters["main"].wait()

    assert len(place.qmd.calls("update")) == 1
