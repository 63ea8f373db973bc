"""A process sees that its settings changed, and what of it can be taken."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memline.shared.config import live
from memline.shared.config.live import LOOK_EVERY_S, SettingsWatch
from memline.shared.config.load import Options, load


class Place:
    """A configuration that a test writes, and what a process sees of it."""

    def __init__(self, folder: Path) -> None:
        self.config, self.notes = folder / "config.json5", folder / "notes"
        self.notes.mkdir()
        self.env = {"HOME": str(folder), "MEMLINE_HOME": str(folder / "home")}
        self.options = Options(config=self.config)
        self.write()

    def write(self, *, memory: dict[str, Any] | None = None, **content: Any) -> None:
        remote = {"apiKey": "sk-first"}
        defaults = {
            "workspace": str(self.notes),
            "memorySearch": {"provider": "openai", "remote": remote, **(memory or {})},
        }
        self.config.write_text(json.dumps({"agents": {"defaults": defaults}, **content}), "utf-8")

    def watch(self, **options: bool) -> SettingsWatch:
        return SettingsWatch(load(self.options, self.env), self.options, self.env, **options)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_change_counts_when_two_looks_agree(place: Place) -> None:
    watch = place.watch()
    place.write(limits={"maxTokensPerDay": 5})

    first, second, third = watch._read(), watch._read(), watch._read()

    assert first is None and third is None
    assert second is not None and second.live == ("limits.maxTokensPerDay",)
    assert second.settings.agents["main"].limits.max_tokens_per_day == 5


def test_a_ceiling_that_is_lowered_holds_within_five_seconds(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now))
    watch = place.watch()
    watch.look()
    place.write(limits={"maxTokensPerDay": 5})
    changed, began = None, now

    # A worker asks each LOOK_EVERY_S; the change comes just after a look.
    while changed is None and now < began + 60:
        now += LOOK_EVERY_S
        changed = watch.look()

    assert changed is not None and changed.live == ("limits.maxTokensPerDay",)
    assert now - began <= 5.0


def test_half_a_file_and_its_end_are_no_change(place: Place) -> None:
    watch, whole = place.watch(), place.config.read_text()
    place.config.write_text("")
    empty = watch._read()
    place.config.write_text(whole)

    assert (empty, watch._read(), watch._read()) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "key", "how"),
    [
        ({"memory": {"remote": {"apiKey": "sk-second"}}}, "memorySearch.remote.apiKey", "live"),
        ({"limits": {"maxCostPerDay": 1}}, "limits.maxCostPerDay", "live"),
        ({"prices": {"m": {"perMillion": 1}}}, "prices", "live"),
        ({"memory": {"remote": {"apiKey": "sk-first", "requestsPerMinute": 3}}}, "requestsPerMinute", "live"),
        ({"memory": {"extraPaths": ["/tmp"]}}, "memorySearch.extraPaths", "live"),
        ({"memory": {"exclude": ["drafts/"]}}, "memorySearch.exclude", "live"),
        ({"memory": {"query": {"maxResults": 3}}}, "memorySearch.query.maxResults", "live"),
        ({"memory": {"model": "text-embedding-3-large"}}, "memorySearch.model", "restart"),
        ({"memory": {"provider": "none"}}, "memorySearch.provider", "restart"),
        (
            {"memory": {"remote": {"apiKey": "sk-first", "batch": {"enabled": True}}}},
            "memorySearch.remote.batch.enabled",
            "restart",
        ),
        ({"serve": {"token": "0123456789abcdef"}}, "serve.token", "restart"),
        ({"serve": {"port": 1234}}, "serve.port", "never"),
        ({"queue": {"url": "redis://127.0.0.1:9/0"}}, "queue.url", "never"),
    ],
)
def test_a_key_is_taken_as_its_row_says(place: Place, changes: dict[str, Any], key: str, how: str) -> None:
    watch = place.watch()
    place.write(**changes)

    changed = watch.look(at_once=True)

    found = {
        "live": changed.live if changed else (),
        "restart": changed.restart if changed else (),
        "never": watch.never,
    }
    assert [name for name, keys in found.items() for each in keys if each.endswith(key)] == [how]


def test_settings_that_are_invalid_change_nothing_and_are_told_with_their_line(place: Place) -> None:
    watch, told = place.watch(), []
    watch.tell = lambda never, problem: told.append(problem)
    place.config.write_text('{\n  agents: {\n  "defaults": [}\n}')

    changed = watch.look(at_once=True)
    problem = watch.problem
    place.write()

    assert changed is None
    assert str(place.config) in problem and "line 3" in problem
    assert watch.look(at_once=True) is None
    assert (watch.problem, told) == ("", [problem, ""])


def test_a_process_that_needs_another_start_is_not_restarted_into_another_queue(place: Place) -> None:
    watch = place.watch()
    place.write(memory={"model": "m"}, queue={"url": "redis://127.0.0.1:9/0"}, limits={"maxCostPerDay": 1})

    changed = watch.look(at_once=True)

    assert changed is not None
    assert (changed.live, changed.restart) == (("limits.maxCostPerDay",), ())
    assert {"queue.url", "memorySearch.model"} <= set(watch.never)
    assert changed.settings.queue.url == ""


@pytest.mark.parametrize(("first", "then"), [(["main", "b"], ["main"]), (["main"], ["main", "b"])])
def test_an_agent_that_comes_or_goes_is_a_reason_to_start_again_and_changes_no_other_key(
    place: Place, first: list[str], then: list[str]
) -> None:
    def write(agents: list[str]) -> None:
        workspaces = {agent: str(place.notes / agent) for agent in agents}
        content = [{"id": agent, "workspace": path} for agent, path in workspaces.items()]
        place.config.write_text(json.dumps({"agents": {"list": content}}), "utf-8")

    write(first)
    watch = place.watch()
    write(then)

    changed = watch.look(at_once=True)

    assert changed is not None and (changed.live, changed.restart) == ((), ("agents.list",))
    assert list(changed.settings.agents) == then
    assert watch.never == ()


def test_an_index_stays_where_it_is_when_another_workspace_is_named(place: Place, tmp_path: Path) -> None:
    watch, before = place.watch(), load(place.options, place.env).settings.agents["main"]
    place.notes = tmp_path / "others"
    place.notes.mkdir()
    place.write(limits={"maxCostPerDay": 1})

    changed = watch.look(at_once=True)

    assert changed is not None and watch.never == ("workspace",)
    after = changed.settings.agents["main"]
    assert (after.workspace, after.index_path) == (before.workspace, before.index_path)


def test_a_process_that_cannot_start_again_takes_all_but_what_is_never_taken(place: Place) -> None:
    watch = place.watch(restarts=False)
    place.write(memory={"model": "m"}, queue={"url": "redis://127.0.0.1:9/0"})

    changed = watch.look(at_once=True)

    assert changed is not None and changed.live == ("memorySearch.model",)
    assert set(watch.never) == {"queue.url", "queue.name"}


def test_a_key_in_a_file_that_a_variable_names_is_seen(place: Place, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-one")
    place.env["VOYAGE_API_KEY_FILE"] = str(key)
    watch = place.watch()
    key.write_text("sk-two")

    changed = watch.look(at_once=True)

    assert changed is not None and changed.live == ("VOYAGE_API_KEY",)


def test_a_file_that_comes_first_now_and_that_of_the_workspace_are_seen(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (tmp_path / ".config" / "memline").mkdir(parents=True)
    notes.mkdir()
    env, options = {"HOME": str(tmp_path)}, Options(workspace=notes)
    watch = SettingsWatch(load(options, env), options, env)

    (tmp_path / ".config" / "memline" / "config.json5").write_text("{limits: {maxCostPerDay: 2}}")
    changed = watch.look(at_once=True)

    assert changed is not None and changed.live == ("limits.maxCostPerDay",)


@pytest.mark.parametrize("named", [None, Path("notes"), Path()])
def test_a_folder_that_is_moved_takes_no_process_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Path | None
) -> None:
    env = {"HOME": str(tmp_path), "MEMLINE_HOME": str(tmp_path / "data")}
    notes = tmp_path / "vault" / ("notes" if named == Path("notes") else "")
    (notes / "memory").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "vault")
    options = Options(workspace=named)
    watch = SettingsWatch(load(options, env), options, env)
    before = watch.settings.agents["main"]
    before.index_path.parent.mkdir(parents=True)
    before.index_path.touch()

    (tmp_path / "vault").rename(tmp_path / "elsewhere")

    assert watch.look(at_once=True) is None
    assert (watch.problem, watch.never) == ("", ())
    again = watch.loaded.settings.agents["main"]
    assert again.workspace == before.workspace == notes
    assert again.index_path == before.index_path

    shutil.rmtree(tmp_path / "elsewhere")
    assert (watch.look(at_once=True), watch.problem) == (None, "")


def test_digests_name_what_differs_and_never_its_value(place: Place) -> None:
    before = place.watch().digests(["embed"], b"secret")
    place.write(
        memory={"remote": {"apiKey": "sk-second"}, "extraPaths": ["/tmp"]}, limits={"maxCostPerDay": 1}
    )
    after = place.watch().digests(["embed"], b"secret")

    assert [name for name in before if before[name] != after[name]] == ["memorySearch.remote.apiKey"]
    assert all(len(each) == 12 for each in after.values()) and "sk-" not in repr(after)
    assert place.watch().digests(["embed"], b"other") != after
