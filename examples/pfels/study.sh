#!/bin/sh
# Figs. 3 and 4 and Tables 2 and 3 of the PFELS paper in small, then the tables of docs/pfels.md. Started again, it goes on
# where it stopped.
#   sh examples/pfels/study.sh [DIR] [OPTION of sfumato sweep]...      e.g. --set training.rounds=3 for a quick look
set -eu
here=$(dirname "$0")
out=${1:-runs/pfels-study}
[ $# -eq 0 ] || shift

# Fig. 3: accuracy against the compression ratio.
sfumato sweep "$here/pfels.yaml" --seeds 3 --out "$out/ratio" "$@" \
    --over compression.ratio=0.02,0.05,0.1,0.3,0.5,1

# Fig. 4 and the tables: against the claimed epsilon, beside the two baselines (the ratio is PFELS's own).
sfumato sweep "$here/pfels.yaml" --seeds 3 --out "$out/epsilon" "$@" \
    --over protocol,privacy.noise.epsilon=pfels:0.1,pfels:0.5,pfels:1.5,pfels:5,wfl-pdp:0.1,wfl-pdp:0.5,wfl-pdp:1.5,wfl-pdp:5,wfl-p:1.5

python "$here/beside_the_paper.py" "$out"
