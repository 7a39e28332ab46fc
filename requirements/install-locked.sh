#!/bin/sh
# Usage: install-locked.sh ENVIRONMENT LOCK
# Installs the packages of a lock file into a virtual environment, with their hashes. uv does so in a fifth of
# pip's CPU time; environments share their files. Where uv fails, pip does: an index that only pip.conf names
# is unknown to uv.
set -eu
pip="$1/bin/python -m pip install --quiet --require-hashes --requirement"

$pip "$(dirname "$0")/uv.lock"
if "$1/bin/uv" pip install --quiet --python "$1/bin/python" --require-hashes --requirement "$2"; then
    exit 0
fi
echo "uv could not install $2: pip does." >&2
$pip "$2"
