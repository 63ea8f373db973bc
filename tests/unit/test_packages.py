"""A hint to install something works for this very installation."""

import os
import re
import shlex
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from memline.shared import packages
from memline.shared.packages import install_command

ROOT = Path(__file__).parents[2]


def test_pip_is_that_of_the_interpreter_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/my venv/bin/python")

    command = install_command("onnxruntime>=1.20", "tokenizers")

    assert command == "'/my venv/bin/python' -m pip install 'onnxruntime>=1.20' tokenizers"


def test_an_environment_of_pipx_gets_packages_injected(tmp_path, monkeypatch):
    prefix = tmp_path / "venvs/memline"
    prefix.mkdir(parents=True)
    (prefix / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(prefix))

    assert install_command("tokenizers") == "pipx inject memline tokenizers"
    upgrade = install_command("tokenizers", options=("--upgrade",))
    assert upgrade == "pipx inject memline --pip-args=--upgrade tokenizers"


def test_an_environment_of_uv_has_no_pip_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    without_pip = install_command("tokenizers")
    monkeypatch.setattr(packages, "find_spec", lambda name: ModuleSpec(name, None))
    (tmp_path / "uv-receipt.toml").write_text("[tool]")

    assert without_pip == install_command("tokenizers")
    assert shlex.split(without_pip) == ["uv", "pip", "install", "--python", sys.executable, "tokenizers"]


def test_a_python_of_the_system_is_asked_as_memline_was_put_there(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(os, "__file__", str(tmp_path / "os.py"))
    before = install_command("tokenizers")
    (tmp_path / "EXTERNALLY-MANAGED").write_text("")

    assert "--break-system-packages" not in before
    assert "pip install --break-system-packages tokenizers" in install_command("tokenizers")


def test_missing_modules_are_found_without_importing_any():
    assert packages.missing(("json", "no_such_module_of_memline")) == ["no_such_module_of_memline"]


def test_no_hint_spells_out_a_command_of_an_installer():
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "memline").rglob("*.py")
        if re.search(r"\bpipx? (install|inject)|uv (pip|tool)\b", path.read_text("utf-8"))
    ]

    assert found == []


def test_no_page_installs_memline_by_its_name():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")]

    found = [
        path.name
        for path in pages
        if re.search(r"((pipx?|tool) install|-U|--with) '?memline\b", path.read_text("utf-8"))
    ]

    assert found == []


def test_a_package_that_is_broken_is_known_once_it_was_imported(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise ImportError('no _core here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = packages.lack_at_a_glance("broken_package")

    assert said == ""
    assert packages.lack("broken_package") == "cannot be imported (no _core here)"
    assert packages.lack_at_a_glance("broken_package") == "cannot be imported (no _core here)"
