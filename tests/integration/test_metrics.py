"""The metrics as Prometheus sees them: a real scrape over HTTP, with a real redis-server behind."""

import re
from urllib.request import urlopen

from memline.shared.config.environment import fleet_name
from memline.shared.config.installation import QueueAddress
from memline.shared.queue.feed import enqueue_files
from memline.shared.queue.redis_broker import on_redis
from tests.support.fleet import Fleet
from tests.support.process import end, running_memline
from tests.support.workspace import note, until


def scrape(url):
    """Content type and text of the page."""
    with urlopen(url, timeout=120) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_scrape_follows_the_fleet(place, redis):
    place.write("MEMORY.md", note(1))
    env = {"MEMLINE_QUEUE_URL": redis.url}
    on_redis(QueueAddress(redis.url, fleet_name(place.home)))
    enqueue_files(place.agent.agent, ["MEMORY.md"])

    with running_memline(*place.arguments("serve", "--port", "0"), env=env) as process:
        assert process.stderr is not None
        url = re.findall(r"http://\S+", process.stderr.readline())[0] + "/metrics"
        kind, before = scrape(url)
        with Fleet(place, redis.url) as fleet:
            fleet.start("chunk", "store")
            until(lambda: 'memline_workers{role="store"} 1.0' in scrape(url)[1], "the store worker")
            until(lambda: '{queue="chunk",state="waiting"} 0.0' in scrape(url)[1], "the chunk worker")
        redis.kill()
        until(lambda: "memline_redis_up 0.0" in scrape(url)[1], "the end of Redis")
        _, after = scrape(url)
        end(process)

    assert kind.startswith("text/plain; version=")
    assert 'memline_queue_messages{queue="chunk",state="waiting"} 1.0' in before
    assert "# TYPE memline_queue_messages gauge" in before
    assert 'memline_workers{role="store"} 0.0' in before
    assert "memline_redis_up 1.0" in before
    assert 'memline_files_behind{agent="main"}' in after
    assert process.returncode == 0
