#!/bin/sh
# The table of docs/records.md: epsilon 4 towards the cloud, for patients in two ways and for whole hospitals.
#   sh examples/hospitals/hospitals.sh [DIR] [OPTION of sfumato sweep]...
set -eu
here=$(dirname "$0")
out=${1:-runs/hospitals}
[ $# -eq 0 ] || shift
sweep() { name=$1; shift; sfumato sweep "$here/hospitals.yaml" --seeds 5 --out "$out/$name" "$@"; }

sweep none "$@" --set privacy.noise=none --over training.learning_rate=0.5,1,2

# Noise on every message, one local step each.
sweep messages "$@" --over training.learning_rate=0.25,0.5,1,2

# Noise at each of four local steps. The multiplier gives 4 for 200 such steps.
sweep steps "$@" --set training.rounds=50 --set training.local_steps=4 \
    --set "privacy.noise={multiplier: 1.925, at: step}" --over training.learning_rate=0.25,0.5,1,2

# All data of a hospital: few messages, as each costs.
sweep hospital "$@" --set privacy.unit=device --set "privacy.clip={kind: update, norm: 1.0}" \
    --set training.local_steps=20 --over training.rounds=1,3,10 --over training.learning_rate=0.1,0.5

python "$here/table.py" "$out"
