"""What was leased and not sent is free when its owner ends, and what is shown as spent is what was billed."""

import signal
import time
from pathlib import Path

import pytest

from memline.shared.sources.tokens import estimate_tokens
from tests.acceptance.conftest import ROWS, write_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import running_memline
from tests.support.undisturbed import assert_as_undisturbed, assert_paid_once
from tests.support.workspace import Place, until

#: Seconds that a run may take; a lease that is not freed holds for 300.
LIMIT_S = 150.0

#: Seconds after which an index goes on after an end, and by how much a loaded machine may be slower.
GOES_ON_S, SLACK = 10.0, 6

#: Looks without a request, ten milliseconds apart, after which all that could come has come.
LOOKS = 100

#: Requests in the air of one embed process; as many answers may wait to be stored.
IN_THE_AIR = 4


def billed(provider: EmbeddingServer) -> int:
    """Tokens of all requests that came, as Memline counts them."""
    with provider.lock:
        texts = [text for request in provider.requests for text in request.body["input"]]
    return sum(map(estimate_tokens, texts))


def shown(place: Place) -> int:
    return int(place.run("status", "--json").json[0]["status"]["spending"]["today"]["tokens"])


def _until_still(provider: EmbeddingServer) -> None:
    """Wait until every request that may be in the air has come: none came for a second."""
    counts = [-1]

    def is_still() -> bool:
        counts.append(len(provider.requests))
        return len(counts) > LOOKS and len(set(counts[-LOOKS:])) == 1

    until(is_still, "a second without a request")


#: SIGINT and SIGTERM are one handler in what runs until it is told to end (unit/cli), and two in `index`.
ENDS = [("index", signal.SIGINT)]
ENDS += [(command, number) for command in ("up", "index") for number in (signal.SIGTERM, signal.SIGKILL)]


@pytest.mark.parametrize(("command", "number"), ENDS, ids=str)
def test_one_signal_in_a_backfill_leaves_no_lease_and_shows_what_was_billed(
    notes: Place, provider: EmbeddingServer, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    provider.control({"latency_ms": 150})
    write_notes(notes, 0, 80)
    with running_memline(*notes.arguments(*command.split())) as process:
        until(lambda: len(provider.log()["requests"]) >= 8)
        is_killed = number == signal.SIGKILL
        if is_killed:
            # Between "sent" in the accounts and the first byte of a request a kill tells nobody which it was.
            provider.control({"fault": "hang"})
            _until_still(provider)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
        process.wait(LIMIT_S)
    # Those of a fleet that was killed end by themselves.
    until(lambda: not any(Path("/proc", pid).exists() for pid in children))

    assert shown(notes) == billed(provider)
    provider.control({"latency_ms": 20, "fault": ""})
    before, began = len(provider.log()["requests"]), time.time()
    ran = notes.run("index", timeout_s=LIMIT_S)
    assert ran.status == 0, ran.stderr
    assert provider.log()["requests"][before]["at"] - began < GOES_ON_S * SLACK
    assert shown(notes) == billed(provider)
    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider, at_most=2 * IN_THE_AIR * ROWS if is_killed else 0)
