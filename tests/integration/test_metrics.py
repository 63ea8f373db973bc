"""`memline metrics` as Prometheus sees it: a real scrape over HTTP, with a real redis-server behind."""

import re
import socket
from contextlib import closing
from urllib.request import urlopen

from memline.shared.config.environment import fleet_name
from memline.shared.config.installation import QueueAddress
from memline.shared.queue.feed import enqueue_files
from memline.shared.queue.redis_broker import on_redis
from tests.support.fleet import Fleet
from tests.support.process import end, running_memline
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note, until


def scrape(url: str) -> tuple[str, str]:
    """Content type and text of the page."""
    with urlopen(url, timeout=120) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_scrape_follows_the_fleet(place: Place, redis: RedisServer) -> None:
    place.write("MEMORY.md", note(1))
    env = {"MEMLINE_QUEUE_URL": redis.url}
    on_redis(QueueAddress(redis.url, fleet_name(place.home)))
    enqueue_files(place.agent.agent, ["MEMORY.md"])

    with running_memline(*place.arguments("metrics", "--port", "0"), env=env) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        kind, before = scrape(url)
        with Fleet(place, redis.url) as fleet:
            fleet.start("chunk", "store")
            until(lambda: 'memline_workers{role="store"} 1.0' in scrape(url)[1], "the store worker")
            until(lambda: '{queue="chunk",state="waiting"} 0.0' in scrape(url)[1], "the chunk worker")
        redis.kill()
        until(lambda: "memline_redis_up 0.0" in scrape(url)[1], "the end of Redis")
        _, after = scrape(url)
        end(process)

    assert url.startswith("http://127.0.0.1:") and url.endswith("/metrics")
    assert kind.startswith("text/plain; version=")
    assert 'memline_queue_messages{queue="chunk",state="waiting"} 1.0' in before
    assert "# TYPE memline_queue_messages gauge" in before
    assert 'memline_workers{role="store"} 0.0' in before
    assert "memline_redis_up 1.0" in before
    assert 'memline_index_up{agent="main"} 1.0' in after
    assert process.returncode == 0


def test_they_can_be_printed_once(place: Place, redis: RedisServer) -> None:
    done = place.run("metrics", "--once", env={"MEMLINE_QUEUE_URL": redis.url})

    assert (done.status, done.stderr) == (0, "")
    assert "memline_redis_up 1.0\n" in done.stdout


def test_a_port_that_is_taken_is_an_error_with_the_next_step(place: Place) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        done = place.run("metrics", "--port", str(taken.getsockname()[1]))

    assert done.status == 1
    assert "Error: cannot serve metrics on 127.0.0.1:" in done.stderr
    assert " metrics --port" in done.stderr


def test_the_age_of_a_backup_and_the_disk_are_told(place: Place) -> None:
    place.write("MEMORY.md", note(1))
    place.index()
    before = place.run("metrics", "--once").stdout
    assert place.run("backup", str(place.folder / "saved")).status == 0
    after = place.run("metrics", "--once").stdout

    assert "memline_backup_age_seconds" not in before
    (age,) = re.findall(r'^memline_backup_age_seconds\{agent="main"\} (\S+)$', after, re.MULTILINE)
    assert 0 <= float(age) < 600
    assert re.search(r"^memline_disk_free_bytes [1-9]", after, re.MULTILINE)
