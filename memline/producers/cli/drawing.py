"""Draw tables and progress bars with rich, whose import takes 60 ms: a command loads this when it draws."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich import progress
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from memline.producers.backends import RunProgress
from memline.shared.visible_text import visible


def draw_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a list as a table: as wide as the terminal, and not folded for a pipe.

    Where it is narrow, words are folded; an id, a state or a count is never cut.
    """
    wide = ("agent", "what", "state")
    shaped = (Column(each, overflow="fold", no_wrap=each not in wide) for each in columns)
    table = Table(*shaped, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        # Text: names of models and words of a provider are no markup.
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console(width=None if Console().is_terminal else 200).print(table)


@contextmanager
def bars(agent: str) -> Iterator[Callable[[RunProgress], None]]:
    """Give a function that shows the progress of a run on stderr while a block runs."""
    console = Console(stderr=True)
    columns: list[progress.ProgressColumn] = [
        # Words of a provider are no markup.
        progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        progress.BarColumn(bar_width=max(5, min(40, console.width - 65))),
        progress.MofNCompleteColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(compact=True),
    ]
    with progress.Progress(*columns, console=console, transient=True) as bar:
        files = bar.add_task(f"{agent[:20]} files", total=None)
        vectors = bar.add_task(f"{agent[:20]} vectors", total=None, visible=False)
        shown = ""

        def show(run: RunProgress) -> None:
            nonlocal shown
            bar.update(files, completed=run.files_done, total=run.files)
            bar.update(vectors, completed=run.vectors_done, total=run.vectors, visible=run.vectors > 0)
            if run.waiting not in ("", shown):
                # Why nothing moves, above the bars: beside them there is no room for it.
                console.print(Text(visible(run.waiting)))
                shown = run.waiting

        yield show
