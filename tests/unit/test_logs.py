import io
import logging

import pytest

from memline.shared import logs


@pytest.fixture
def output():
    """What is logged during the test; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_one_line_of_event_and_fields(output):
    logs.configure("INFO", output)

    logs.Log("chunk", queue="chunk").info("file.chunked", path="a b.md", chunks=3, note="x\ny")

    (line,) = output.getvalue().splitlines()
    _time, rest = line.split(" ", 1)
    assert rest == 'INFO chunk file.chunked queue=chunk path="a b.md" chunks=3 note="x\\ny"'
    assert _time.endswith("Z")


def test_records_below_the_level_are_dropped(output):
    logs.configure("WARNING", output)

    logs.Log("chunk").info("quiet")
    logs.Log("chunk").warning("loud")

    assert output.getvalue().splitlines()[0].endswith("loud")


@pytest.mark.parametrize(("level", "lines"), [("INFO", 0), ("DEBUG", 2)])
def test_what_libraries_say_of_every_request_is_for_debugging(output, level, lines):
    logs.configure(level, output)

    logging.getLogger("httpx").info("HTTP Request: POST http://127.0.0.1/v1/embeddings")
    logging.getLogger("mcp.server.streamable_http").info("Terminating session: None")

    assert len(output.getvalue().splitlines()) == lines


def test_the_fields_of_a_log_are_in_its_lines_alone(output):
    logs.configure("INFO", output)
    logs.Log("x", a=1, b=2).error("one")
    logs.Log("x").error("two")

    first, second = output.getvalue().splitlines()
    assert first.endswith("one a=1 b=2")
    assert second.endswith("two")


def test_a_traceback_stays_in_its_line(output):
    logs.configure("INFO", output)

    try:
        raise ValueError("of this kind")
    except ValueError:
        logs.Log("x").exception("failed")

    (line,) = output.getvalue().splitlines()
    assert "ValueError: of this kind" in line
    assert "test_logs.py" in line


def test_lines_of_other_libraries_have_the_same_shape(output):
    logs.configure("INFO", output)

    logging.getLogger("dramatiq.worker").info("started\n%d threads", 4)

    (line,) = output.getvalue().splitlines()
    assert line.endswith('INFO dramatiq.worker "started\\n4 threads"')


def test_configuring_again_replaces_the_first_time(output):
    logs.configure("INFO", io.StringIO())
    logs.configure("INFO", output)

    logs.Log("x").info("once")

    assert len(output.getvalue().splitlines()) == 1
