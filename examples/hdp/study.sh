#!/bin/sh
# LDP (C1), HDP (C2), CDP (C4) and no noise at all on the same data, then the tables of docs/hdp.md. Started again,
# it goes on where it stopped.
#   sh examples/hdp/study.sh [DIR] [OPTION of sfumato sweep]...      e.g. --set training.rounds=3 for a quick look
set -eu
here=$(dirname "$0")
out=${1:-runs/hdp-study}
[ $# -eq 0 ] || shift
spec="$here/study.yaml"

# With a target, noise is placed by trust: nobody is trusted (C1), the supernodes are (C2), the cloud is, too (C4).
cases=trust.trusted_edges,trust.cloud

# (a) the same epsilon towards the public.
sfumato sweep "$spec" --seeds 3 --out "$out/public" "$@" \
    --set 'privacy.noise={epsilon: 8, for: public}' \
    --over $cases=0.0:false,1.0:false,1.0:true --over privacy.noise.epsilon=2,8

# (b) the same epsilon towards the cloud, which has none if it adds the noise itself. Last point: no zones, so that
# the cloud meets each client's message by itself.
sfumato sweep "$spec" --seeds 3 --out "$out/cloud" "$@" \
    --set 'privacy.noise={epsilon: 8, for: cloud}' --over privacy.noise.epsilon=8,32 --over \
    "topology.edges,topology.devices_per_edge,trust.trusted_edges,transport.devices_to_edge=10:10:0.0:secure-aggregation,10:10:1.0:secure-aggregation,100:1:0.0:plain"

# (c) the same multiplier at every noiser: the paper's alignment. And nobody adds any.
sfumato sweep "$spec" --seeds 3 --out "$out/multiplier" "$@" \
    --over 'privacy.noise.placement={device: 1.0},{edge: 1.0},{cloud: true}'
sfumato sweep "$spec" --seeds 3 --out "$out/none" "$@" --over privacy.noise=none

# Fig. 3: 600 clients, of which k = 100, 200, 300 are online on average; 10 to 50 zones; supernodes add the noise.
# They may see raw updates, so plain messages change nothing but the time it takes.
sfumato sweep "$spec" --seeds 3 --out "$out/fig3" "$@" \
    --set training.participation.kind=poisson --set transport.devices_to_edge=plain \
    --over topology.edges,topology.devices_per_edge=10:60,20:30,30:20,40:15,50:12 \
    --over training.participation.rate=0.16666667,0.33333333,0.5

python "$here/beside_the_paper.py" "$out"
