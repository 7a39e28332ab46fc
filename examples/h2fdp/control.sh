#!/bin/sh
# Figs. 5, 8 and 10 of the H2FDP paper: control against no control and the baselines, and what the weights do; then the
# tables of docs/h2fdp.md. Started again, it goes on where it stopped.
#   sh examples/h2fdp/control.sh [DIR] [OPTION of sfumato run]...      e.g. --set training.rounds=5 for a quick look,
#   or --seeds 20 where intervals do not separate
set -eu
here=$(dirname "$0")
out=${1:-runs/h2fdp-control}
[ $# -eq 0 ] || shift
spec=$here/control.yaml

# Fig. 5: energy and delay until an accuracy is reached; at the paper's noise, and at a hundredth of its variance, where all
# reach the paper's 75 %. The gap's noise term falls with that variance, so its weight grows.
go() {
    name=$1 epsilon=$2
    shift 2
    sfumato run "$spec" --seeds 8 --quiet --resume --out "$out/epsilon-$epsilon/$name" \
        --set "privacy.noise.epsilon=$epsilon" "$@"
}
for epsilon in 1 10; do
    case $epsilon in 1) gap=1 ;; 10) gap=100 ;; esac
    go control $epsilon --set "control.optimality_gap_weight=$gap" "$@"
    go no-control $epsilon --set control=null "$@"
    go hfl-dp $epsilon --set control=null --set protocol=hfl-dp "$@"
    # all devices one untrusted cluster, the same steps and edge period; trust is ignored
    go pedpfl $epsilon --set control=null --set protocol=pedpfl "$@"
done

# Figs. 8 and 10: the mean interval and participation against alpha_1, alpha_2 and alpha_3, with edges of 15 devices, the
# paper's largest s_c. A device then holds 400 examples; batches of 3 keep q near 1/120.
for weight in energy delay optimality_gap_weight; do
    case $weight in optimality_gap_weight) values=0.01,0.1,1,10 ;; *) values=1e-5,1e-3,1e-2,1e-1 ;; esac
    sfumato sweep "$spec" --seeds 3 --set evaluate_every=1000 --set topology.devices_per_edge=15 \
        --set training.batch_size=3 --over "control.$weight=$values" --out "$out/$weight" "$@"
done

python "$here/control_beside_the_paper.py" "$out"
