#!/bin/sh
# Part I of H2FDP's control: the default step size (stable), the theorem's, and none of it (scheduled), at three levels of
# noise and without any; then the table of docs/control.md. Started again, it goes on where it stopped.
#   sh examples/h2fdp/step_sizes.sh [DIR] [OPTION of sfumato run]...      e.g. --set training.rounds=5 for a quick look
set -eu
here=$(dirname "$0")
out=${1:-runs/h2fdp-step-sizes}
[ $# -eq 0 ] || shift
for level in 1 10 100 none; do
    # the gap's noise term falls with the noise's variance, so its weight grows
    case $level in
        none) protocol=hfl noise=none gap=1 ;;
        *) protocol=h2fdp noise="{formula: h2fdp, epsilon: $level, c2: 1.0}" gap=$((level * level)) ;;
    esac
    for rule in stable scheduled theorem; do
        sfumato run "$here/control.yaml" --quiet --resume --out "$out/$level/$rule" --set "protocol=$protocol" \
            --set "privacy.noise=$noise" --set "control.optimality_gap_weight=$gap" \
            --set "control.step_size=$rule" "$@"
    done
done
python "$here/step_sizes_table.py" "$out"
