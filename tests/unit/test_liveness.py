"""What a supervisor is told, and that a loop that hangs says nothing."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from memline.producers.runs import following
from memline.producers.watching.follow import Follower
from memline.shared import liveness
from memline.shared.config import environment
from memline.shared.liveness import Liveness
from tests.support.notify_socket import TIMEOUT_S, notify_socket


def speaker(heard):
    return Liveness(*environment.liveness(heard.variables))


def test_pings_are_sent_as_often_as_systemd_needs_and_no_more(tmp_path):
    with notify_socket(tmp_path, watchdog_s=3_600) as heard:
        signs = speaker(heard)
        for _ in range(3):
            signs.alive()
        signs.stopping()

        assert heard.until("STOPPING=1") == ["WATCHDOG=1"]


def test_signs_of_life_that_systemd_does_not_hear_hold_up_nothing(tmp_path):
    path = tmp_path / "notify.sock"
    Liveness(str(tmp_path / "gone")).ready()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(path))
        opened.settimeout(TIMEOUT_S)
        signs = Liveness(str(path), watchdog_s=1e-9)
        # More than a socket keeps that is not read.
        for _ in range(2_000):
            signs.alive()

        assert opened.recv(100) == b"WATCHDOG=1"


def test_a_file_is_touched_by_the_loop_and_gone_when_it_ends(tmp_path, monkeypatch):
    file = tmp_path / "alive"
    monkeypatch.setattr(liveness, "EVERY_S", 0.0)
    signs = Liveness(*environment.liveness({"MEMLINE_ALIVE_FILE": str(file)}))

    signs.ready()
    os.utime(file, (0, 0))
    signs.alive()
    touched = file.stat().st_mtime
    signs.stopping()

    assert touched > 0
    assert not file.exists()
    Liveness(file=str(tmp_path / "gone" / "alive")).ready()


def test_an_abstract_socket_is_named_with_an_at_sign():
    name = f"memline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(f"\0{name}")
        opened.settimeout(TIMEOUT_S)
        Liveness(f"@{name}").ready()

        assert opened.recv(100) == b"READY=1"


@pytest.mark.parametrize(("other", "watchdog_s"), [(None, 30.0), (0, 30.0), (1, None)])
def test_the_watchdog_is_of_the_process_that_systemd_started(other, watchdog_s):
    pid = "" if other is None else str(os.getpid() + other)
    env = {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": pid}

    assert environment.liveness(env) == ("/s", watchdog_s, "")


def test_a_loop_that_hangs_sends_no_pings(place, tmp_path, monkeypatch):
    stop, hung, go_on = threading.Event(), threading.Event(), threading.Event()
    rounds = 0

    def tick(_):
        nonlocal rounds
        rounds += 1
        if rounds == 4:
            hung.set()
            go_on.wait()

    with notify_socket(tmp_path, watchdog_s=0.1) as heard:
        arguments = {"stop": stop, "on_note": lambda _: None, "liveness": speaker(heard)}
        monkeypatch.setattr(Follower, "tick", tick)
        thread = threading.Thread(target=following.up, args=(place.settings, [place.agent]), kwargs=arguments)
        thread.start()
        try:
            heard.until("READY=1")
            assert hung.wait(TIMEOUT_S)
            while heard.next(0.5):
                pass
            # What came until now was said before the loop hung; a thread of its own would go on.
            assert heard.next(1) == ""
        finally:
            stop.set()
            go_on.set()
            thread.join()

        assert heard.until("STOPPING=1")[:1] in ([], ["WATCHDOG=1"])
