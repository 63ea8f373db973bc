"""The dashboard in a real browser: Chromium, over a real server with an index, a queue and hostile notes."""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import BrowserContext, Page, sync_playwright

from memline.producers.runs.index_run import bring_up_to_date
from memline.shared.config.load import Options, load
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.fleet import WorkerInfo
from tests.support.http_api import serving
from tests.support.index_rows import MODEL_A, add_batch, cancel_backfill, fail_all, make_job, retarget
from tests.support.redis_server import RedisServer
from tests.support.stored_messages import StoredMessages, files

#: Debian's names and others'.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

#: Would run, or ask for a picture, if one was not escaped; `owned` is looked for in every page.
HOSTILE = (
    "<script>window.owned = 1</script>",
    '"><img src="http://127.0.0.1:9/x.png" onerror="window.owned = 1">',
    "' autofocus onfocus='window.owned = 1' x='",
    "</textarea></pre><svg onload=window.owned=1>",
    "javascript:window.owned=1",
    "{{ 7 * 7 }}\u202e\x1b]0;owned\x07",
)

#: A name of a file that is markup; a slash cannot be in one.
HOSTILE_NAME = 'x"><img src=x onerror=window.owned=1>.md'


@pytest.fixture(scope="module")
def chromium():
    """A browser. Skips where none is installed; in CI that is a failure.

    While it is there this thread runs an event loop: no test of another module could begin one.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        message = "no chromium is installed: apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with sync_playwright() as started:
        # As root, as in a container, Chromium has no sandbox of its own; /dev/shm may be small there.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = started.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


class World:
    """A server with all there is to show, and what it stands on."""

    def __init__(self, folder, redis):
        self.folder = folder
        self.redis = redis
        self.notes = folder / "notes"
        self.url = ""

    def configure(self, **serve):
        config = self.folder / "config.json5"
        content = {
            "agents": {"list": [{"id": "main", "workspace": str(self.notes)}]},
            "queue": {"url": self.redis.url, "name": "web"},
            "serve": serve,
        }
        config.write_text(json.dumps(content))
        return load(Options(config=config, home=self.folder / "home"))

    def write(self, path, text):
        file = self.notes / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def fill_rows(self, agent):
        """Have a job whose texts failed with hostile errors, and a batch."""
        with closing(IndexWriter.of(agent)) as writer:
            retarget(writer, MODEL_A)
            # A chart to draw.
            writer.note_minute()
            fail_all(writer, HOSTILE[0])
            add_batch(writer, "b" * 32, job_id="batch_1", error=HOSTILE[1], created_at=1.0, due=9e12)

    def make_job(self, *paths):
        """Have a job with these files to read; return its token."""
        with closing(IndexWriter.of(self.configure().agents["main"])) as writer:
            return make_job(writer, *paths).token

    def cancel_jobs(self):
        with closing(IndexWriter.of(self.configure().agents["main"])) as writer:
            cancel_backfill(writer)

    def fill_queue(self):
        """Put dead letters with hostile errors there, and a worker that seems to be alive."""
        stored = StoredMessages(self.redis.url, "web")
        for number, text in enumerate(HOSTILE):
            stored.put("chunk", f"m{number}", files(text), error=text)
        worker = WorkerInfo(
            id="w1",
            threads_of={"chunk": 2},
            host="<b>host</b>",
            pid=1,
            version="1",
            started=0,
            seen=time.time(),
        )
        stored.client.hset(stored.client.key("workers"), "w1", msgspec.msgpack.encode(worker))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    with RedisServer(folder / "redis") as redis:
        world = World(folder, redis)
        world.write("MEMORY.md", "# Facts\n\nInvoices are whole cents.\n\n" + "\n\n".join(HOSTILE) + "\n")
        world.write(f"memory/{HOSTILE_NAME}", "# <b>Bold</b>\n\n" + "\n".join(HOSTILE) + "\n")
        world.write("memory/long.md", "# Long\n\n" + "a" * 3000 + "\n\n" + "word " * 400 + "\n")
        loaded = world.configure()
        # Indexed in this process, as before the fleet was there.
        agent = loaded.agents["main"]
        bring_up_to_date(replace(loaded, queue=replace(loaded.queue, url="")), agent)
        world.fill_queue()
        with serving(loaded) as world.url:
            world.fill_rows(agent)
            yield world


#: Opens pages of a server as a user with these preferences does, and tells what went wrong there.
Opener = Callable[..., Page]


@pytest.fixture
def opened(chromium, world):
    """Make a page of the browser; at the end nothing may have run, failed or left for another origin."""
    contexts, wrong = list[BrowserContext](), list[str]()

    def note_error(said):
        if said.type == "error":
            wrong.append(f"{said.location}: {said.text}")

    def note_origin(sent):
        if urlsplit(sent.url).hostname != "127.0.0.1" or urlsplit(sent.url).port == 9:
            wrong.append(f"asked another origin: {sent.url}")

    def make(*, url="", width=1280, script=True):
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="light",
            java_script_enabled=script,
            base_url=url or world.url,
        )
        contexts.append(context)
        page = context.new_page()
        # Minutes, so that a loaded machine fails none.
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        page.on("dialog", lambda dialog: wrong.append(f"{page.url}: {dialog.message}"))
        page.on("console", note_error)
        page.on("request", note_origin)
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []
