"""Take the pictures of docs/dashboard.md: a fleet of real processes at its first import, page by page.

    python -m tests.browser.screenshots docs/images

Needs redis-server and chromium. The provider is a stub server that answers slowly.
"""

import argparse
import os
import shutil
import socket
import tempfile
from itertools import product
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

from memline.producers.reports.job_reports import listed
from memline.shared.config.load import Options, load
from tests.browser.conftest import PROGRAMS
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.http_api import serving
from tests.support.process import ROOT
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note, remote, until

#: (name of the picture, address below /ui); each is taken wide and light, and narrow and dark.
PAGES = (
    ("overview", "/"),
    ("search", "/search?q=why+did+we+choose+redis"),
    ("note", "/note?path=MEMORY.md"),
    ("agents", "/agents"),
    ("files", "/files"),
    ("queues", "/queues"),
    ("messages", "/messages?state=waiting"),
    ("workers", "/workers"),
    ("jobs", "/jobs"),
    ("job", "/jobs/{job}"),
    ("batches", "/batches"),
    ("providers", "/providers"),
    ("sessions", "/sessions"),
    ("configuration", "/configuration?set=1"),
)

#: Ending of the name, width in pixels, colours.
FORMS: tuple[tuple[str, int, Literal["light", "dark"]], ...] = (("", 1280, "light"), ("-narrow", 390, "dark"))

#: Height of a picture in pixels, and notes of three texts each.
HEIGHT, NOTES = 820, 900

#: Vectors that are ready when the pictures are taken: the charts have points by then.
SHOWN_AT = 1_000

#: Nothing of this machine is in a picture: its name becomes this one.
HOST = "kelp"

_RENAME = """
([from, to]) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const name = new RegExp(`(?<![\\\\w.-])${from}(?![\\\\w.-])`, 'g');
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replace(name, to);
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("MEMLINE_CONFIG", None)
    with (
        tempfile.TemporaryDirectory(prefix="memline-") as work,
        EmbeddingServer(dims=64, latency_ms=900) as provider,
        RedisServer(Path(work) / "redis") as redis,
    ):
        place = Place(folder=Path(work) / "user", memory=remote(provider.url, maxRows=8))
        shutil.copytree(ROOT / "examples" / "workspace", place.workspace, dirs_exist_ok=True)
        os.environ["MEMLINE_QUEUE_URL"] = redis.url
        for number in range(NOTES):
            place.write(f"memory/archive/{number:04}.md", note(number))
        with Fleet(place, redis.url) as fleet:
            fleet.up()
            loaded = load(Options(config=place.config, home=place.home))
            with serving(loaded.settings, loaded=loaded) as url:
                until(lambda: fleet.vectors().get("ready", 0) > SHOWN_AT, "vectors")
                job = listed([loaded.settings.agents["main"]], prices={}, now=0.0)[0].id
                _take(url, folder, job)


def _take(url: str, folder: Path, job: str) -> None:
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for (name, path), (ending, width, scheme) in product(PAGES, FORMS):
            context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
            page: Page = context.new_page()
            page.goto(f"{url}/ui{path.format(job=job)}")
            page.wait_for_selector("[data-live]:visible")
            page.evaluate(_RENAME, [socket.gethostname(), HOST])
            page.screenshot(path=folder / f"{name}{ending}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
