"""Draw tables and progress bars with rich, whose import takes 60 ms: a command loads this when it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich import progress
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from memline.producers.backends import RunProgress
from memline.shared.visible_text import visible


def draw_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a list as a table: as wide as the terminal, and not folded for a pipe."""
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        # Text: names of models and words of a provider are no markup.
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console(width=None if Console().is_terminal else 200).print(table)


@contextmanager
def bars(agent: str) -> Iterator[Callable[[RunProgress], None]]:
    """Give a function that shows the progress of a run on stderr while a block runs."""
    console = Console(stderr=True)
    note = ""

    class Bars(progress.Progress):
        """The bars, and below them why nothing moves: beside them there is no room for it."""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            if note:
                yield Text(note)

    def text(words: str, max_width: int | None = None) -> progress.TextColumn:
        # Words of a provider are no markup.
        return progress.TextColumn(
            words, markup=False, table_column=Column(no_wrap=True, max_width=max_width)
        )

    # What is dropped where it is narrow: the rate below 70 columns, the time so far below 90.
    width = console.width
    columns: list[progress.ProgressColumn] = [text("{task.description}", max_width=20)]
    columns += [progress.BarColumn(bar_width=max(5, min(40, width - 65))), progress.MofNCompleteColumn()]
    columns += [text("{task.fields[rate]}")] * (width >= 70)
    columns += [text("elapsed"), progress.TimeElapsedColumn()] * (width >= 90)
    columns += [text("left"), progress.TimeRemainingColumn(compact=True)]
    with Bars(*columns, console=console, transient=True) as bar:
        files = bar.add_task(f"{agent} files", total=None, rate="")
        vectors = bar.add_task(f"{agent} vectors", total=None, rate="", visible=False)

        def show(run: RunProgress) -> None:
            nonlocal note
            note = visible(run.waiting)
            bar.update(files, completed=run.files_done, total=run.files)
            done, total = run.vectors_done, run.vectors
            bar.update(vectors, completed=done, total=total, visible=total > 0)
            for task in bar.tasks:
                if task.speed:
                    bar.update(task.id, rate=f"{task.speed:.0f}/s")

        yield show
