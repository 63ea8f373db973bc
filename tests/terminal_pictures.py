"""Take the pictures of docs/search.md: commands on terminals of 60, 80 and 120 columns, as they are shown.

python -m tests.terminal_pictures docs/images
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.process import ROOT
from tests.support.pseudo_terminal import on_terminal

COLUMNS = (60, 80, 120)

#: Shown in each picture, one after the other.
COMMANDS = (
    ("index",),
    ("search", "why did we choose Redis for the queue?", "--max-results", "2"),
    ("search", "ERR_CONN_43", "--max-results", "1"),
    ("status",),
)

#: A window around the lines, with a font of the reader's own: a picture asks no other server for one.
_WINDOW = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>
.{unique_id}-matrix {{ font: {char_height}px monospace; line-height: {line_height}px; white-space: pre }}
{styles}</style><defs>{lines}</defs>
<rect fill="#0c0c0c" width="100%" height="100%" rx="6"/>
<g transform="translate({terminal_x}, 10)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def picture(columns: int, home: Path) -> str:
    """Run the commands on a terminal of so many columns; return what it shows as SVG."""
    console = Console(width=columns, record=True, file=(home / "shown").open("w"), force_terminal=True)
    env = {
        "MEMLINE_CONFIG": str(ROOT / "examples" / "config.json5"),
        "MEMLINE_HOME": str(home),
        "HOME": "/home/you",
    }
    for command in COMMANDS:
        with on_terminal(*command, columns=columns, env=env) as terminal:
            terminal.end()
        words = " ".join(f"'{word}'" if " " in word else word for word in command)
        console.print(Text(f"$ memline {words}", style="bold"), highlight=False)
        # A progress bar draws its line again and again: the last drawing stays.
        lines = terminal.shown.strip().replace("\r\n", "\n").split("\n")
        shown = "\n".join(line.rpartition("\r")[2] for line in lines)
        shown = shown.replace(str(home), "~/.local/share/memline").replace(str(ROOT), "~/memline")
        for line in shown.rstrip().split("\n"):
            # As a terminal does: cut at its last column.
            console.print(Text.from_ansi(line), overflow="fold", highlight=False)
        console.print()
    return console.export_svg(theme=MONOKAI, code_format=_WINDOW, unique_id=f"columns-{columns}")


def main() -> None:
    """Write a picture for each width into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for columns in COLUMNS:
        with tempfile.TemporaryDirectory() as home:
            (folder / f"terminal-{columns}.svg").write_text(picture(columns, Path(home)))


if __name__ == "__main__":
    main()
