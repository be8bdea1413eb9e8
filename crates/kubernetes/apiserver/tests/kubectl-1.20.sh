#!/bin/sh
# Prints the path of kubectl 1.20, as Debian 12 packages it (kubernetes-client). Fetched once, unpacked without root.
set -eu
cache="$(cd "$(dirname "$0")/../../../.." && pwd)/.cache"
kubectl="$cache/kubectl-1.20/usr/bin/kubectl"
mkdir -p "$cache"
exec 9>"$cache/kubectl-1.20.lock"
flock 9
if [ ! -x "$kubectl" ]; then
    work="$(mktemp -d "$cache/kubectl-1.20.XXXXXX")"
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get -q download kubernetes-client >&2)
    dpkg -x "$work"/kubernetes-client_*.deb "$work/root"
    rm -rf "$cache/kubectl-1.20"
    mv "$work/root" "$cache/kubectl-1.20"
fi
echo "$kubectl"
