"""One process at a time dispatches an index, and others can tell which."""

import os
import subprocess
import sys

from memline.shared.index.hold import Holder, hold, holder_of, lock_of

_HOLD = """
import sys
from pathlib import Path
from memline.shared.index.hold import hold
held = hold(Path(sys.argv[1]), "up", 7.0)
print(held is not None, flush=True)
input()
"""


def test_one_process_holds_an_index_until_it_ends_however_it_ends(tmp_path):
    index = tmp_path / "memory" / "main.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"True\n"
        by_other, mine = holder_of(index), hold(index, "index", 8.0)
        process.kill()
    after = holder_of(index)
    taken = hold(index, "index", 9.0)

    assert (by_other, mine, after) == (Holder(pid=process.pid, kind="up", started=7.0), None, None)
    assert taken is not None
    assert holder_of(index) == Holder(pid=os.getpid(), kind="index", started=9.0)
    assert lock_of(index).stat().st_mode & 0o777 == 0o600
    taken.close()
    assert holder_of(index) is None
