"""Draw figures as SVG for docs/benchmarks.md; the same figures give the same files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: Where the documentation finds them.
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


def growth(measured: Mapping[int, Mapping[str, tuple[str, float]]], folder: Path = IMAGES) -> list[Path]:
    """Draw how each figure grows with the chunks, one picture a unit; returns the files.

    `measured`: chunks -> name -> (unit, value). Without matplotlib (extra `bench`) nothing is drawn.
    """
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("svg")
    from matplotlib import pyplot

    # Ids of the same elements are the same every time, and letters are letters.
    matplotlib.rcParams.update({"svg.hashsalt": "memline", "svg.fonttype": "none", "font.size": 9})
    sizes = sorted(measured)
    units: dict[str, list[str]] = {}
    for name, (unit, _) in measured[sizes[0]].items():
        units.setdefault(unit, []).append(name)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for unit, names in units.items():
        figure, axes = pyplot.subplots(figsize=(5.6, 3.2), layout="constrained")
        for name in names:
            axes.plot(sizes, [measured[size][name][1] for size in sizes], marker="o", label=name)
        top = min(measured[sizes[0]][name][1] for name in names)
        linear = [top * size / sizes[0] for size in sizes]
        axes.plot(sizes, linear, linestyle=":", color="gray", label="linear")
        axes.set(xscale="log", yscale="log", xlabel="chunks", ylabel=unit)
        axes.legend(fontsize=7)
        files.append(folder / f"growth-{unit.split()[0].lower()}.svg")
        figure.savefig(files[-1], metadata={"Date": None})
        pyplot.close(figure)
        lines = files[-1].read_text().splitlines()
        files[-1].write_text("".join(f"{line.rstrip()}\n" for line in lines))
    return files
