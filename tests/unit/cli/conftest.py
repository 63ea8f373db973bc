import signal
import sys

import click
import pytest

from memline.producers import cli
from memline.producers.cli.invocation import command
from memline.shared.errors import ConfigError, MemlineError


@pytest.fixture(autouse=True)
def handlers():
    """The handler of SIGTERM after a command that ran in this process is the one before."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def probe(monkeypatch):
    """A command `probe` that only notes the global options it was given."""
    seen = []

    fails = ("hint", "usage", "disk", "interrupt", "status")

    @command(name="probe")
    @click.option("--fail", type=click.Choice(fails))
    def probe_command(invocation, fail):
        seen.append(invocation.options)
        match fail:
            case "hint":
                raise MemlineError("it broke", hint="memline doctor")
            case "usage":
                raise ConfigError("no such thing")
            case "disk":
                raise OSError(28, "No space left on device", "/full/x")
            case "interrupt":
                raise KeyboardInterrupt
            case "status":
                return 1
        return None

    module = type(sys)("probe")
    module.command = probe_command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", "probe:command")
    return seen
