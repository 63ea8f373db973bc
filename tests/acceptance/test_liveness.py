"""Every process that runs for long tells systemd that it is ready, alive and ending."""

import pytest

from tests.support.notify_socket import notify_socket
from tests.support.process import end, running_memline


@pytest.mark.parametrize(
    ("command", "needs_redis"),
    [
        ("up", False),
        ("serve --port 0", False),
        ("watch", True),
        ("worker chunk store query", True),
    ],
)
def test_systemd_hears_that_a_process_is_ready_alive_and_ending(
    command, needs_redis, redis_server, place, tmp_path
):
    queue = {"MEMLINE_QUEUE_URL": redis_server.url} if needs_redis else {}
    with (
        notify_socket(tmp_path) as heard,
        running_memline(*place.arguments(*command.split()), env=queue | heard.variables) as process,
    ):
        started = heard.until("READY=1")
        alive = [heard.next() for _ in range(3)]
        end(process)
        ended = heard.until("STOPPING=1")

    assert process.returncode == 0
    assert started == []
    assert {*alive, *ended} == {"WATCHDOG=1"}
