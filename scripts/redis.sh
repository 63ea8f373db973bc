#!/bin/sh
# Installs redis-server, which the tests of the fleet start for themselves, when there is none on the PATH.
# Where that cannot be, it says so: those tests are then skipped, and where CI is set this script fails.
set -eu

if command -v redis-server >/dev/null; then
    exit 0
fi

give_up() {
    printf '%s, and the tests of the fleet need it.\nTry: %s\n' "$1" "$2" >&2
    if [ -n "${CI:-}" ]; then exit 1; else exit 0; fi
}

command -v apt-get >/dev/null ||
    give_up 'There is no redis-server on the PATH' 'brew install redis   (or see https://redis.io/downloads)'
sudo=
if [ "$(id -u)" != 0 ]; then
    # -n: a test run never stops to ask for a password.
    sudo='sudo -n'
    $sudo true 2>/dev/null ||
        give_up 'There is no redis-server on the PATH' 'sudo apt-get install redis-server'
fi
echo 'Installing redis-server ...'
# RUNLEVEL=1 keeps Debian from starting a service of its own: the tests want a server a test.
install="$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
if ! { $sudo apt-get update -qq && $install redis-server; } >/dev/null; then
    give_up 'redis-server could not be installed' 'apt-get install redis-server'
fi
