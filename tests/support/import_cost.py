"""Find the imports inside functions, and measure what each costs: processor time in a fresh interpreter.

`python -m tests.support.import_cost` writes tests/late_imports.toml again.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "late_imports.toml"

#: The row of the list with what `reference` took when its figures were measured.
REFERENCE = "reference"

INTRODUCTION = """\
# Imports inside a function, with the milliseconds of processor time that they spare a process which does not
# get there. One that costs less than 1 stands at the top of its file. A test compares this list with the tree
# and with what the imports cost here; `python -m tests.support.import_cost` writes it again.
"""


def late_imports() -> dict[str, list[str]]:
    """Return the names that are imported inside a function, by `file: module`."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "memline").rglob("*.py")):
        functions = (each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if is_function(each))
        for node in (node for function in functions for node in ast.walk(function)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names}
                for module in [node.module or ""] if isinstance(node, ast.ImportFrom) else names:
                    row = found.setdefault(f"{path.relative_to(ROOT)}: {module}", set())
                    row |= names if isinstance(node, ast.ImportFrom) else set()
    return {row: sorted(names) for row, names in sorted(found.items())}


def is_function(node: ast.AST) -> bool:
    """Tell whether it is the definition of a function."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def costs(rows: dict[str, list[str]], *, times: int = 1) -> dict[str, float]:
    """Return the least milliseconds of each import by `file: module`, and those of the reference.

    What is not installed here is left out.
    """
    program = [sys.executable, "-m", "tests.support.import_cost", str(times)]
    ran = subprocess.run(
        program, input=json.dumps(rows), capture_output=True, text=True, cwd=ROOT, check=True
    )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def _measured(rows: dict[str, list[str]], times: int) -> dict[str, float]:
    found = {REFERENCE: min(_in_a_child(_reference) for _ in range(5))}
    by_file: dict[str, dict[str, list[str]]] = {}
    for row, names in rows.items():
        file, _, module = row.partition(": ")
        if find_spec(module.partition(".")[0]) is not None:
            by_file.setdefault(file, {})[module] = names
    for file, modules in by_file.items():
        found |= _in_a_child(_late_imports_of, file, modules, times)
    return found


def _in_a_child(measure: Callable[..., Any], *arguments: object) -> Any:
    """Run it in a fork of this process, which stays as it is."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.write(into, json.dumps(measure(*arguments)).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        measured = json.load(answer)
    os.waitpid(child, 0)
    return measured


def _late_imports_of(file: str, modules: dict[str, list[str]], times: int) -> dict[str, float]:
    """Import a file, and measure each of its late imports in a fork that has imported the file alone."""
    parts = Path(file).with_suffix("").parts
    import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return {
        f"{file}: {module}": min(_in_a_child(_import, module, names) for _ in range(times))
        for module, names in modules.items()
    }


def _reference() -> float:
    """Do what takes about as long as an import, on any machine; the milliseconds."""
    began = time.process_time()
    sum(number * number % 7 for number in range(100_000))
    return _ms_since(began)


def _import(module: str, names: list[str]) -> float:
    began = time.process_time()
    __import__(module, fromlist=names)
    return _ms_since(began)


def _ms_since(began: float) -> float:
    return round((time.process_time() - began) * 1000, 1)


def main() -> None:
    """Measure the rows that standard input names, or write the list."""
    if len(sys.argv) > 1:
        print(json.dumps(_measured(json.load(sys.stdin), int(sys.argv[1]))))
        return
    found = costs(late_imports(), times=5)
    lines = [f"{json.dumps(name)} = {figure}" for name, figure in found.items()]
    LIST.write_text(f"{INTRODUCTION}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
