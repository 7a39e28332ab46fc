#!/bin/sh
# An environment of its own for pfl, outside the repository: sh benchmarks/pfl_environment.sh DIRECTORY
set -e
python3 -m venv "$1"
"$1/bin/python" -m pip install --quiet torch==2.13.0
"$1/bin/python" -m pip install --quiet --no-deps pfl==0.6.0
"$1/bin/python" -m pip install --quiet numpy scipy 'dp-accounting<0.6' 'multiprocess<0.71' 'packaging<26' 'prv-accountant<0.3' 'wheel<0.46'
