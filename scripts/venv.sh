#!/bin/sh
# Makes .venv with $PYTHON (python3 when unset), or says in one line what is missing for it.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

fail() {
    printf 'Error: %s\nTry: %s\n' "$1" "$2" >&2
    exit 1
}

command -v "$python" >/dev/null ||
    fail "there is no $python on the PATH" 'make demo PYTHON=/path/to/python3.12'
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "$python does not run" 'make demo PYTHON=/path/to/python3.12'
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Memline needs Python 3.11 or newer, and $python is $version" 'make demo PYTHON=python3.12'

# What is there may be of an older Python, or half made.
if .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    exit 0
fi
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: its modules venv and ensurepip are missing" \
        "sudo apt install python3-venv   (Debian and Ubuntu), then the same command again"
echo "Making a virtual environment in .venv with Python $version ..."
"$python" -m venv --clear .venv
