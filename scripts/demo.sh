#!/bin/sh
# A tour of the sample notes: index them, ask a few questions, read one, look at the state of things.
# Needs `memline` on the PATH; `make demo` sees to it. Everything it writes goes to .demo/ and is thrown away.
set -eu
cd "$(dirname "$0")/.."

# Only the configuration of the tour counts, not the reader's own.
unset MEMLINE_WORKSPACE MEMLINE_QUEUE_URL
export MEMLINE_CONFIG=examples/config.json5 MEMLINE_HOME=.demo
rm -rf .demo

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi

say() { printf '\n# %s\n' "$1"; }

# Prints a command line as one would type it, then runs it. The lines below are the script's own.
run() {
    printf '%s$ %s%s\n' "$bold" "$1" "$plain"
    eval "$1"
}

say 'Fourteen notes of a small team, a throw-away index, no server, no key, no model:'
run 'export MEMLINE_CONFIG=examples/config.json5 MEMLINE_HOME=.demo'
run 'memline index'

say 'A question in plain words'
run "memline search 'why did we choose Redis for the queue?' --max-results 1"

say 'A commit, found by its id'
run 'memline search a828e60 --max-results 1'

say 'An error code, and how each score came about'
run 'memline search ERR_CONN_42 --max-results 2 --explain'

say 'Chinese: why is the disk full?'
run "memline search '磁盘为什么满了' --max-results 1"

say 'A day: its file is found by name'
run "memline search 'what happened on 2026-02-10' --max-results 1"

say 'The same answers for a program (its first lines)'
run "memline search 'cafe on the ferry' --since 2026-02-01 --max-results 1 --json | head -13"

say 'The lines behind a citation'
run "memline get 'memory/runbooks/restore.md#L5-L12'"

say 'What is indexed, what is stale'
run 'memline status'

say 'Your own notes: . .venv/bin/activate, then memline --workspace DIR index'
