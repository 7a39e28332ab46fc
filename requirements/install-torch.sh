#!/bin/sh
# Usage: install-torch.sh ENVIRONMENT
# Installs the torch of torch.lock into a virtual environment that holds run.lock: a build for CPUs where one
# can be had. On Linux the package index has torch with CUDA only, some 5 GB. CPU builds come without hashes:
# they are other files under the same version, one for every Python, in an index of PyTorch's own.
set -eu
python=$1/bin/python
locks=$(dirname "$0")
version=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$locks/torch.lock")
pip="$python -m pip install --quiet"

if "$python" -c 'import importlib.metadata as m, sys; sys.exit(m.version("torch").partition("+")[0] != sys.argv[1])' \
    "$version" 2>/dev/null; then
    exit 0
fi
if [ "$(uname -s)" = Linux ]; then
    if $pip "torch==$version+cpu" 2>/dev/null; then # where pip is configured to find CPU builds
        exit 0
    fi
    $pip --require-hashes --requirement "$locks/uv.lock"
    if "$1/bin/uv" pip install --quiet --python "$python" --torch-backend=cpu "torch==$version"; then
        exit 0
    fi
    echo "No CPU build of torch $version could be fetched. Installing the one with CUDA instead:" >&2
    echo "about 3 GB to download, more than 5 GB on disk. It runs on CPUs just the same." >&2
fi
$pip --require-hashes --no-deps --requirement "$locks/torch.lock"
