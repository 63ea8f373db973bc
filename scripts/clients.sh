#!/bin/sh
# Puts Codex, Gemini CLI and opencode into .venv/clients and prints the folder of their programs. Only tests use
# them: each client's own list of servers has to show what `memline setup` wrote.
set -eu
folder="$PWD/.venv/clients"
packages="@openai/codex@0.169.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33"
mark="$folder/$(echo "$packages" | tr ' @/' '-__')"
if [ ! -e "$mark" ]; then
    mkdir -p "$folder"
    # shellcheck disable=SC2086
    npm install --silent --no-fund --no-audit --prefix "$folder" $packages >&2
    for program in codex gemini opencode; do
        "$folder/node_modules/.bin/$program" --version >&2
    done
    touch "$mark"
fi
echo "$folder/node_modules/.bin"
