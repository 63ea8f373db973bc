"""Names that are not UTF-8, and standard streams that are closed: a line that says so, or the answer."""

import os
import socket

import httpx
import pytest

from tests.support.process import end, running_memline
from tests.support.workspace import until

pytestmark = pytest.mark.place(files={"memory/good.md": "# Good\n\nThe lighthouse is white.\n"})

#: As Python reads bytes that are not UTF-8.
CAFE = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize(
    "args",
    [
        ("get", f"{CAFE}.md"),
        ("search", "lighthouse", "--tag", CAFE),
    ],
)
def test_an_argument_that_is_not_utf_8_is_named_in_one_line(place, args):
    place.index()

    ran = place.run(*args)

    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[0].startswith(r"Error: not a name in UTF-8: caf\xe9")


@pytest.mark.parametrize("command", [("search", "lighthouse"), ("get", "memory/good.md"), ("status",)])
@pytest.mark.parametrize(("number", "name"), [(0, "stdin"), (1, "stdout"), (2, "stderr")])
def test_a_command_ends_well_with_a_standard_stream_that_is_closed(place, command, number, name):
    place.write("memory/nul.md", "a\0b")
    place.index()

    ran = place.run(*command, before=f"import os, sys; os.close({number}); sys.{name} = None")

    assert ran.status == 0
    assert "Traceback" not in ran.stderr
    assert bool(ran.stdout) == (name != "stdout")


BROKEN = pytest.mark.parametrize(
    "broken",
    [
        pytest.param(f"import os; os.dup2({end}, 2); os.closerange(3, 100)", id=name)
        for name, end in {"full": "os.open('/dev/full', os.O_WRONLY)", "pipe": "os.pipe()[1]"}.items()
    ],
)


@BROKEN
@pytest.mark.parametrize("command", [("nope",), ("search", "x", "--nope"), ("serve", "--port", "x")])
def test_a_usage_error_that_cannot_be_printed_has_its_status(place, broken, command):
    assert place.run(*command, before=broken).status == 2


@BROKEN
def test_a_server_that_cannot_say_where_it_is_serves(place, broken):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def answers():
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        except httpx.ConnectError:
            return False

    with running_memline(*place.arguments("serve", "--port", str(port)), before=broken) as process:
        until(lambda: process.poll() is not None or answers(), "it serves")
        end(process)

    assert process.returncode == 0


@BROKEN
def test_a_standard_error_that_takes_nothing_ends_no_command(place, broken):
    ran = place.run("index", "--force", before=broken)

    assert (ran.status, ran.stderr) == (0, "")
    assert "1 chunk" in ran.stdout
