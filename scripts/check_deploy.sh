#!/bin/sh
# Check the files below deploy/ with the programs that they are for, as far as they are installed. From the top of
# the repository: sh scripts/check_deploy.sh
status=0
try() {
    program=$1
    shift
    if ! command -v "$program" >/dev/null; then
        echo "-- not tried, there is no $program: $*"
    elif "$program" "$@"; then
        echo "-- good: $program $*"
    else
        echo "-- BAD: $program $*"
        status=1
    fi
}

units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT
# The program of the units need not be installed here.
for unit in deploy/systemd/fleet/memline.target deploy/systemd/*.service; do
    sed 's|^ExecStart=.*|ExecStart=/bin/true|' "$unit" > "$units/${unit##*/}"
done
sed 's|^ExecStart=.*|ExecStart=/bin/true|' deploy/systemd/fleet/memline@.service > "$units/memline@store.service"
try systemd-analyze verify "$units/memline@store.service" "$units/memline.target" \
    "$units/memline.service" "$units/memline-serve.service"
try systemd-analyze security --no-pager --offline=yes --threshold=40 "$units/memline@store.service"
try promtool check config deploy/prometheus/prometheus.yml
try promtool check rules deploy/prometheus/alerts.yml
try promtool test rules deploy/prometheus/alerts_test.yml
try hadolint deploy/Dockerfile
# The secrets are not in the repository.
cp -r deploy/kubernetes "$units"
echo a > "$units/kubernetes/base/secrets/openai_api_key"
echo a > "$units/kubernetes/base/secrets/serve_token"
echo redis://:a@redis:6379/0 > "$units/kubernetes/overlays/fleet/secrets/queue_url"
for overlay in small fleet keda complete; do
    try kubectl kustomize "$units/kubernetes/overlays/$overlay" --output "$units"
done

exit $status
