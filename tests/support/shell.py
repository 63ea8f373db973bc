"""A user's shell for tests: command lines in this process, in a folder of their own."""

from memline.producers.cli import run
from tests.support.process import Ran


class Shell:
    """Runs `memline` in one folder after another, with this test's home."""

    def __init__(self, monkeypatch, capsys):
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args, cwd=None):
        """Run one command line in `cwd`, and stay there."""
        if cwd is not None:
            self._monkeypatch.chdir(cwd)
        self._capsys.readouterr()
        status = run(args)
        out, err = self._capsys.readouterr()
        return Ran(status=status, stdout=out, stderr=err, args=args)

    def setenv(self, name, value):
        """Export a variable."""
        self._monkeypatch.setenv(name, value)
