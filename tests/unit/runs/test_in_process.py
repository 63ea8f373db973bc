import threading

import pytest

from memline.producers.runs import in_process
from memline.producers.runs.in_process import local_workers
from memline.shared.queue.feed import enqueue_files
from memline.workers import context, process

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_what_a_thread_of_the_run_before_raises_does_not_end_this_run(place, monkeypatch):
    began, may_end, hanging = threading.Event(), threading.Event(), list[threading.Thread]()
    monkeypatch.setattr(in_process, "STOP_TIMEOUT_MS", 10)

    def hang(*_, **__):
        hanging.append(threading.current_thread())
        began.set()
        may_end.wait()
        raise RuntimeError("its connections were closed")

    with local_workers(place.settings) as check_first:
        # By its name: the actors belong to the broker of their import.
        monkeypatch.setattr("memline.workers.chunk.FileReader", hang)
        enqueue_files("main", ["MEMORY.md"])
        began.wait()
    with local_workers(place.settings) as check_second:
        may_end.set()
        hanging[0].join()

        check_first()
        check_second()


def test_workers_wait_for_the_end_of_those_that_run_in_this_process(place):
    entered = threading.Event()

    def second():
        with local_workers(place.settings):
            entered.set()

    waiting = threading.Thread(target=second)
    with local_workers(place.settings):
        own = context.current()
        waiting.start()

        assert not entered.wait(0.2) and context.current() is own
    waiting.join()

    assert entered.is_set()


def test_workers_that_cannot_start_keep_no_others_from_it(place, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(process, "import_module", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError), local_workers(place.settings):
            pass

    with local_workers(place.settings) as check:
        check()
