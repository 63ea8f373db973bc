"""Messages listed, filtered, requeued and dropped on a real redis-server."""

from collections.abc import Iterator

import msgspec
import pytest

from memline.shared.errors import BadRequest
from memline.shared.queue import message_changes, message_list, middleware
from memline.shared.queue.message_list import DEAD, DELAYED, WAITING, Filter
from memline.shared.queue.messages import RunQuery
from tests.support.redis_server import RedisServer
from tests.support.stored_messages import StoredMessages, files


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[StoredMessages]:
    server = StoredMessages(redis_server.url)
    yield server
    server.client.close()


def test_messages_are_found_by_queue_agent_id_and_glob(server: StoredMessages) -> None:
    server.put(DEAD, "chunk", "one", files("a.md", "deep/b.md"), ago_s=9, error="OSError: disk", retries=3)
    server.put(DEAD, "chunk", "two", files("c.md", agent="work"), error="no", first_error="OSError: disk")
    server.put(DEAD, "query", "three", RunQuery(agent="main", query="q", reply_to="box"))

    assert server.names() == ["one", "two", "three"]
    assert server.names(queue="query") == server.names(match="run_query*") == ["three"]
    assert server.names(agent="work") == ["two"]
    assert server.names(match="*disk*") == ["one"]
    assert server.names(match="t*") == ["two", "three"]
    assert [each.id for each in message_list.listed(server.url, Filter(ids=("two", "gone")))] == ["two"]
    (found,) = message_list.page(server.url, Filter(match="one")).messages
    assert (found.paths, found.retries, found.agent) == (("a.md", "deep/b.md"), 3, "main")
    assert found.dead_s is not None and 8 < found.dead_s < 600


def test_a_page_ends_and_the_next_one_goes_on_over_all_queues(server: StoredMessages) -> None:
    for number in range(5):
        agent = "work" if number == 1 else "main"
        queue = "chunk" if number < 3 else "store"
        server.put(DEAD, queue, f"m{number}", files("a.md", agent=agent), ago_s=60 - number)

    seen, cursor, is_first = [], "", True
    while cursor or is_first:
        page = message_list.page(server.url, Filter(agent="main"), cursor=cursor, limit=2)
        seen.append([each.id for each in page.messages])
        cursor, is_first = page.cursor, False

    assert seen == [["m0", "m2"], ["m3", "m4"]]
    assert {queue: count for queue, count in page.counts.items() if count} == {"chunk": 3, "store": 2}


def test_dead_letters_are_grouped_by_what_their_errors_have_in_common(server: StoredMessages) -> None:
    errors = ["no file 'a.md'", "OSError: disk is full", "no file 'b c.md'", "OSError: disk is gone", "no"]
    errors += ["pid 4211 ended", "pid 5312 ended", "status 401", "status 500", "at /x/y", "at /z"]
    for number, error in enumerate(errors):
        server.put(DEAD, "chunk", f"m{number:02}", files("a.md"), ago_s=60 - number, error=error)

    groups = message_list.groups(server.url, Filter())

    names = sorted([each.id for each in group.messages] for group in groups)
    together = [["m00", "m02"], ["m05", "m06"], ["m09", "m10"]]
    assert names == sorted([*together, *([f"m{number:02}"] for number in (1, 3, 4, 7, 8))])
    (first,) = [group for group in groups if group.error == "no file 'a.md'"]
    assert server.names(group=first.id) == ["m00", "m02"]
    assert len(groups[0].messages) == 2 and len(groups[-1].messages) == 1
    assert message_list.groups(server.url, Filter(queue="store")) == []


@pytest.mark.parametrize("cursor", ["chunk", "no.1", "chunk.-1", "chunk.9999999999", "x" * 500])
def test_a_place_that_is_none_is_refused(server: StoredMessages, cursor: str) -> None:
    with pytest.raises(BadRequest, match="not a place"):
        message_list.page(server.url, Filter(), cursor=cursor)


def test_a_queue_that_does_not_exist_is_refused(server: StoredMessages) -> None:
    with pytest.raises(BadRequest, match="no queue 'no'"):
        message_list.page(server.url, Filter(queue="no"))
    with pytest.raises(BadRequest, match="no queue 'no'"):
        message_changes.drop(server.url, DEAD, [("no", "one")])


def test_a_long_list_is_examined_a_part_at_a_time(
    server: StoredMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_list, "_READ", 4)
    monkeypatch.setattr(message_list, "MAX_EXAMINED", 8)
    for number in range(20):
        agent = "work" if number == 19 else "main"
        server.put(DEAD, "chunk", f"m{number:02}", files("a.md", agent=agent), ago_s=60 - number)

    first = message_list.page(server.url, Filter(agent="work"))
    assert (first.messages, first.cursor) == ((), "chunk.8")
    last = message_list.page(server.url, Filter(agent="work"), cursor="chunk.16")
    assert ([each.id for each in last.messages], last.cursor) == (["m19"], "")
    assert [each.id for each in message_list.listed(server.url, Filter(agent="work"))] == ["m19"]
    assert len(message_list.listed(server.url, Filter())) == 20
    assert len(message_list.listed(server.url, Filter(), limit=7)) == 7


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x90",
        b"\x80",
        msgspec.msgpack.encode({"actor_name": 3, "args": 5, "options": "x", "message_timestamp": "y"}),
        msgspec.msgpack.encode({"actor_name": "a", "args": [{"agent": 1, "paths": [1, [2]], "files": [3]}]}),
        msgspec.msgpack.encode({"actor_name": "a", "args": [{"paths": 7, "files": None, "session": 1}]}),
        msgspec.msgpack.encode({"refused": b"\xff\xfe", "options": {"error": "it is odd"}}),
    ],
)
def test_what_is_no_message_is_listed_and_shown_all_the_same(server: StoredMessages, data: bytes) -> None:
    server.put(DEAD, "chunk", "odd", data)

    (found,) = message_list.page(server.url, Filter()).messages
    assert found.to_json()["state"] == DEAD
    shown = message_list.details(server.url, DEAD, "chunk", "odd")

    assert found.id == "odd" and shown is not None
    assert message_changes.requeue(server.url, DEAD, [("chunk", "odd")]) == 1
    assert server.client.lrange("memline:t:chunk", 0, -1) == [b"odd"]


def test_an_error_that_is_cut_within_a_letter_is_listed(server: StoredMessages) -> None:
    server.put(DEAD, "chunk", "one", files("ä" * 400), error="ä" * 400)
    server.put(DEAD, "chunk", "two", files("a"), error="aä" * 400)

    assert server.names() == ["one", "two"]


def test_a_dead_request_to_embed_is_removed_and_not_paid_for_again(server: StoredMessages) -> None:
    request = msgspec.msgpack.encode({"actor_name": "embed_texts", "args": [{}], "options": {"error": "no"}})
    refused = msgspec.msgpack.encode({"refused": request, "options": {"error": "of another release"}})
    server.put(DEAD, "embed", "one", request)
    server.put(DEAD, "embed", "refused", refused)
    server.put(DEAD, "embed", "two", files("a.md"), error="no")

    chosen = [("embed", name) for name in ("one", "refused", "two")]
    done = message_changes.requeue(server.url, DEAD, chosen)

    assert (done, server.names()) == (3, [])
    assert server.client.lrange("memline:t:embed", 0, -1) == [b"two"]


def test_a_message_that_is_put_back_waits_as_new_and_only_once(server: StoredMessages) -> None:
    server.put(DEAD, "store", "one", files("a.md"), error="no", first_error="f", trace="t", retries=3)
    server.put(WAITING, "store", "before", files("b.md"))

    chosen = [("store", "one")]
    done = [message_changes.requeue(server.url, DEAD, chosen) for _ in range(2)]

    assert done == [1, 0]
    assert server.client.lrange("memline:t:store", 0, -1) == [b"before", b"one"]
    assert server.stored("store", "one")["options"] == {}
    assert server.names() == []


def test_a_delayed_message_is_retried_at_once(server: StoredMessages) -> None:
    server.put(DELAYED, "store", "one", files("a.md"), ago_s=-600, error="no", retries=1)
    (listed,) = message_list.page(server.url, Filter(state=DELAYED)).messages

    assert message_changes.requeue(server.url, DELAYED, [("store", "one"), ("store", "gone")]) == 1

    assert listed.retry_in_s is not None and listed.retry_in_s > 1
    assert server.names(WAITING) == ["one"]
    # Its tries still count.
    assert server.stored("store", "one")["options"]["retries"] == 1


@pytest.mark.parametrize("state", [DEAD, DELAYED, WAITING])
def test_what_is_dropped_leaves_nothing(server: StoredMessages, state: str) -> None:
    server.put(state, "store", "one", files("a.md"))

    chosen = [("store", "one")]
    done = [message_changes.drop(server.url, state, chosen), message_changes.drop(server.url, state, chosen)]

    assert (done, server.client.keys("memline:t:*")) == ([1, 0], [])


def test_a_message_that_a_worker_has_taken_is_not_dropped(server: StoredMessages) -> None:
    server.put(WAITING, "store", "one", files("a.md"))
    server.client.lpop("memline:t:store")

    assert message_changes.drop(server.url, WAITING, [("store", "one")]) == 0

    assert server.client.hexists("memline:t:store.msgs", "one")
    assert message_list.details(server.url, WAITING, "store", "one") is None


def test_details_have_the_first_and_the_last_error_with_its_trace(server: StoredMessages) -> None:
    first = middleware.failure_options({}, OSError("disk"))
    try:
        raise ValueError("half a letter: \udc80")
    except ValueError as error:
        last = middleware.failure_options(first, error)
    server.put(DEAD, "chunk", "one", files("a.md", "b.md"), retries=3, **last)

    shown = message_list.details(server.url, DEAD, "chunk", "one")

    assert shown is not None
    assert (shown.first_error, shown.error) == ("OSError: disk", "ValueError: half a letter: ?")
    assert "test_details_have" in shown.trace and shown.paths == ("a.md", "b.md")
    assert shown.first_failed_at is not None
