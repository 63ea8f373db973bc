"""The command `memline`.

The module of a command is imported only when that command runs, so that `memline search` does not pay for
what `memline up` needs.
"""

from memline.producers.cli.root import COMMANDS as COMMANDS
from memline.producers.cli.root import run as run
