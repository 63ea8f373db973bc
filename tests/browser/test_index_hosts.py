"""The page of queues while two index hosts of one fleet are under load."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from memline.shared.config.load import Options, load
from tests.browser.conftest import Opener
from tests.support.embedding_server import EmbeddingServer
from tests.support.http_api import serving
from tests.support.index_hosts import NAME, TEXTS, two_fleets, two_hosts
from tests.support.redis_server import RedisServer

NOTES = 40

#: A deadline and no goal, in ms.
DEADLINE = 120_000


def test_an_open_page_follows_the_queues_of_both_hosts(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddingServer(dims=16, latency_ms=200) as provider, RedisServer(tmp_path / "redis") as redis:
        hosts = two_hosts(tmp_path, provider)
        with two_fleets(hosts, redis.url) as (one, two):
            monkeypatch.setenv("MEMLINE_QUEUE_URL", redis.url)
            monkeypatch.setenv("MEMLINE_QUEUE_NAME", NAME)
            monkeypatch.setenv("MEMLINE_QUEUE_HOST", "one")
            loaded = load(Options(config=hosts[0].config, home=hosts[0].home))
            with serving(loaded.settings, loaded=loaded) as url:
                page = opened(url=url)
                page.goto("/ui/queues")
                queues = ("chunk-one", "chunk-two", "store-one", "store-two", "embed")
                for number in range(NOTES):
                    hosts[0].add("alpha", number)
                    hosts[1].add("beta", number)

                for number, queue in enumerate(queues, NOTES):
                    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=queue))
                    # Of the last minute: with one more note there is something in it, however slow all is.
                    hosts[0].add("alpha", number)
                    hosts[1].add("beta", number)
                    rate = row.locator('[data-label="Rate"]')
                    expect(rate).to_have_text(re.compile("[1-9]"), timeout=DEADLINE)
                    expect(row).to_contain_text("served", timeout=DEADLINE)
                texts = (NOTES + len(queues)) * TEXTS
                for fleet in (one, two):
                    fleet.until(lambda fleet=fleet: fleet.vectors() == {"ready": texts}, "all vectors")
                # Before its server: an open page would ask it again.
                page.close()
