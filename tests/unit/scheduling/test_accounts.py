"""Two agents with one key: one breaker, in two indexes that know nothing of each other."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from memline.shared.embedders.choice import Choice
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.errors import IndexFault
from memline.shared.index.accounts import AccountFile, bar_sessions
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from tests.support.clock import ManualClock
from tests.support.index_rows import MODEL_A, fail, file_row, lease_all, use


def choice(identity=MODEL_A, *, key="k"):
    endpoint = Endpoint(provider="openai", base_url="http://x/v1", public=False, key=key)
    return Choice(requested="openai", provider="openai", identity=identity, endpoint=endpoint)


@pytest.fixture
def clock():
    return ManualClock()


def wanting(path, clock, chosen):
    writer = IndexWriter(path, clock=clock)
    use(writer, chosen)
    writer.store_file(file_row("a.md", f"apples of {path.stem}", f"pears of {path.stem}"))
    return writer


@pytest.fixture
def pair(tmp_path, clock):
    with (
        closing(wanting(tmp_path / "one.sqlite", clock, choice())) as one,
        closing(wanting(tmp_path / "two.sqlite", clock, choice())) as two,
    ):
        yield one, two


def test_a_bad_key_that_one_agent_meets_stops_the_other_before_it_asks(
    pair,
):
    one, two = pair
    (request,) = lease_all(one)

    fail(one, request, "stop")

    assert lease_all(two) == []
    assert health.read(two.accounts, "openai").reason == "it was stop"


def test_a_damaged_account_file_is_named_and_left_as_it_is(pair, tmp_path):
    """It has the sessions that were forgotten; what only reads it goes on."""
    one, two = pair
    fail(one, lease_all(one)[0], "stop")
    path = tmp_path / "accounts.sqlite"
    one.accounts.file.close()
    two.accounts.file.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    damaged = b"not a database, but long enough to be taken for one" * 100
    path.write_bytes(damaged)

    assert not health.read(two.accounts, "openai").paused
    with pytest.raises(IndexFault, match="is damaged") as raised:
        lease_all(two)

    assert str(path) in raised.value.hint
    assert path.read_bytes() == damaged


def test_breakers_of_an_older_release_are_forgotten_and_forgotten_sessions_kept(pair, tmp_path):
    one, two = pair
    fail(one, lease_all(one)[0], "stop")
    bar_sessions(one.accounts.file, "main", ["s.jsonl"], 1.0)
    with one.accounts.file.writing() as connection:
        connection.execute("ALTER TABLE health ADD COLUMN since REAL NOT NULL DEFAULT 0")
        connection.execute("PRAGMA user_version = 13")
    one.accounts.file.close()
    two.accounts.file.close()

    assert not health.read(two.accounts, "openai").paused
    fail(two, lease_all(two)[0], "stop")

    assert health.read(one.accounts, "openai").paused
    assert b"s.jsonl" in (tmp_path / "accounts.sqlite").read_bytes()


def test_the_account_file_holds_no_key(tmp_path, clock):
    with closing(wanting(tmp_path / "one.sqlite", clock, choice(key="sk-very-secret-key"))) as one:
        fail(one, lease_all(one)[0], "stop")
        account = one.accounts.of("openai")

    assert account == "openai:" + choice(key="sk-very-secret-key").mark
    assert len(account) == len("openai:") + 8
    assert all(b"very-secret" not in path.read_bytes() for path in tmp_path.iterdir())
    assert (tmp_path / "accounts.sqlite").stat().st_mode & 0o777 == 0o600
    assert replace(choice(), endpoint=None).mark == ""
    AccountFile(tmp_path / "accounts.sqlite").close()
