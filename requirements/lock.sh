#!/bin/sh
# Usage: lock.sh UV [--upgrade]
# Writes the lock files from pyproject.toml with the program UV:
#   run.lock     what Sfumato needs, without torch; the same versions on every system and Python from 3.11 on
#   dev.lock     that, and what the extras and the developers' tools need
#   docs.lock    what Sfumato and the documentation site need
#   torch.lock   torch of the package index, on Linux with the packages of CUDA (install-torch.sh)
#   lowest.lock  the least versions that pyproject.toml allows, for Python 3.11; without torch
#   uv.lock      uv itself
# Versions stay what they are where they may, those of lowest.lock aside.
set -eu
uv=$1
shift
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
of_torch='^(torch|triton|cuda-[a-z0-9-]+|nvidia-[a-z0-9-]+)=='

compile() {
    "$uv" pip compile --quiet --generate-hashes --no-annotate --python-version 3.11 \
        --custom-compile-command 'make lock' "$@"
}

split() { # FILE NAME: a file of all packages into NAME.lock, and into torch.lock if that is named
    awk -v torch="$of_torch" '/^[a-z]/ { other = $0 ~ torch } !other' "$1" >"$2.lock"
    [ $# -lt 3 ] || awk -v torch="$of_torch" '/^[a-z]/ { other = $0 !~ torch } !other' "$1" >"$3.lock"
}

cat run.lock torch.lock >"$work/run"
compile --universal --fork-strategy fewest "$@" --output-file "$work/run" ../pyproject.toml
split "$work/run" run torch

cat dev.lock torch.lock >"$work/dev"
compile --universal --fork-strategy fewest "$@" --constraint "$work/run" --output-file "$work/dev" \
    --extra hub --extra hdf5 --extra tensorboard --extra plan --extra explore --extra dev ../pyproject.toml
split "$work/dev" dev

cat docs.lock torch.lock >"$work/docs"
compile --universal --fork-strategy fewest "$@" --constraint "$work/dev" --output-file "$work/docs" --extra docs ../pyproject.toml
split "$work/docs" docs

compile --resolution lowest-direct --output-file "$work/lowest" \
    --extra hub --extra hdf5 --extra tensorboard --extra plan --extra explore --extra test ../pyproject.toml
split "$work/lowest" lowest

echo uv | compile --universal "$@" --output-file uv.lock -
