#!/bin/sh
# Figs. 6, 7 and 9 of the H2FDP paper, then the tables of docs/h2fdp.md. Started again, it goes on where it stopped.
#   sh examples/h2fdp/figures.sh [DIR] [OPTION of sfumato sweep]...      e.g. --set training.rounds=3 for a quick look
set -eu
here=$(dirname "$0")
out=${1:-runs/h2fdp-figures}
[ $# -eq 0 ] || shift

# Fig. 6: share of trusted edges by claimed epsilon.
sfumato sweep "$here/figures.yaml" --seeds 3 --out "$out/fig6" "$@" \
    --over trust.trusted_edges=0,0.2,0.5,0.8,1 --over privacy.noise.epsilon=0.5,1,1.5

# Fig. 7: 10 to 50 devices. Config. 1: edges of 5, 2 to 10 of them; Config. 2: 2 edges, of 5 to 25. All of the
# training data is shared out, so the batch grows as devices get fewer: q = 1/120 in all points, as in (15).
sfumato sweep "$here/figures.yaml" --seeds 3 --out "$out/fig7" "$@" --over \
    topology.edges,topology.devices_per_edge,training.batch_size=2:5:50,4:5:25,6:5:17,8:5:13,10:5:10,2:10:25,2:15:17,2:20:13,2:25:10

# Fig. 9: claimed epsilon, and no noise at all (hfl).
sfumato sweep "$here/figures.yaml" --seeds 3 --out "$out/fig9" "$@" \
    --over protocol,privacy.noise.epsilon=h2fdp:0.5,h2fdp:1,h2fdp:1.5,hfl:1

python "$here/beside_the_paper.py" "$out"
