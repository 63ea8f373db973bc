#!/bin/sh
# Checks the first line of a commit message: `scope: imperative`, at most 72 characters. Takes the message's file.
set -eu
subject=$(head -n 1 "$1")
if ! printf '%s\n' "$subject" | grep -Eq '^[a-z][a-z0-9/, -]*: [A-Za-z].*[^.]$'; then
    echo "The subject is not of the form \`scope: imperative\`: $subject" >&2
    echo 'Try: queue: retry a cancel when Redis is down' >&2
    exit 1
fi
if [ "$(printf '%s' "$subject" | wc -m)" -gt 72 ]; then
    echo "The subject has more than 72 characters: $subject" >&2
    exit 1
fi
