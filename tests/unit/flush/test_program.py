from __future__ import annotations

import sys

import pytest

from shared.errors import ProviderError
from shared.flush import program


def run(script: str, text: str = "hello", *, timeout_s: float = 10.0) -> str:
    command = [sys.executable, "-c", script]
    return program.run(command, text, timeout_s=timeout_s, max_bytes=100_000, what="turn", where="x.command")


def test_a_program_that_does_not_read_what_it_is_given_may_answer() -> None:
    assert run("print('- fact')", "x" * 1_000_000) == "- fact\n"


def test_a_program_that_answers_while_it_reads_holds_nobody_up() -> None:
    script = "import sys; [print(line, end='') for line in sys.stdin]"

    assert run(script, "line\n" * 15_000) == "line\n" * 15_000


def test_an_endless_answer_is_refused() -> None:
    with pytest.raises(ProviderError, match="more than 100000 bytes"):
        run("while True: print('x' * 1_000)")


def test_endless_complaints_are_told_by_their_end() -> None:
    script = "import sys; sys.stderr.write('noise ' * 100_000 + 'key=sk-abcdefgh12345678 end'); sys.exit(3)"

    with pytest.raises(ProviderError, match="ended with 3: ") as caught:
        run(script)

    assert "abcdefgh" not in caught.value.message and len(caught.value.message) < 500


def test_what_a_program_started_ends_with_it() -> None:
    # The child holds the output open, so that its end would never come.
    script = "import subprocess; subprocess.Popen(['sleep', '60'])"

    with pytest.raises(ProviderError, match=r"no answer within 0\.5 s"):
        run(script, timeout_s=0.5)


@pytest.mark.parametrize("name", ["", "/no/such/program", "a\0b"])
def test_a_program_that_cannot_be_started_is_told(name: str) -> None:
    with pytest.raises(ProviderError, match="cannot be started"):
        program.run([name], "", timeout_s=1, max_bytes=1, what="turn", where="x.command")
