"""The facts of a tree as `ledger.json` has them (docs/accounting.md, "By hand")."""

from __future__ import annotations

from typing import Any

from sfumato.privacy.tree.facts import AggregationFacts, TreeFacts


def tree_as_json(facts: TreeFacts) -> dict[str, Any]:
    """``facts`` as JSON: enough to recompute every ε without this library."""
    return {
        "kind": "tree",
        **({"noise_not_composed": facts.noise_law.name} if facts.noise_law.why_not_composed else {}),
        "rounds": facts.rounds,
        "tiers": [
            {"name": name, "parents": parents.tolist()}
            for name, parents in zip(facts.names, facts.parents, strict=True)
        ],
        "devices_per_leaf": facts.devices.tolist(),
        "participants_per_leaf": facts.drawn.tolist(),
        "denominator_per_leaf": (1.0 / facts.leaf_weight).tolist(),
        "largest_denominator_per_leaf": facts.largest_denominators.tolist(),
        "denominator_depends_on_draw": facts.divides_by_drawn,
        "sure_per_leaf": facts.min_contributors.tolist(),
        "always_sent": facts.all_nodes_always_send,
        "devices_may_drop_out": facts.may_drop_out,
        "elections_per_round": facts.elections,
        "rounded_after_noise": facts.rounds_after_noise,
        "hops": list(facts.hops or ("plain",) * facts.depth),
        "shares_that_unmask": [shares.tolist() for shares in facts.unmask_thresholds],
        "device_classes": [
            {"leaf": int(leaf), "devices": int(count), "weight": float(weight), "noisy": bool(noisy)}
            for leaf, count, weight, noisy in zip(
                facts.classes.leaf,
                facts.classes.count,
                facts.classes.weight,
                facts.classes.noisy,
                strict=True,
            )
        ],
        **({} if facts.classes.of_device is None else {"class_per_device": facts.classes.of_device.tolist()}),
        "draw": {
            "kind": facts.draw_kind,
            "rate": facts.draw_rate,
            "seen_by": f"{facts.names[facts.draw_seen_from]} of the device",
        },
        **facts.batches.to_dict(),
        "steps": [_step_as_json(step) for step in facts.steps],
    }


def _step_as_json(step: AggregationFacts) -> dict[str, Any]:
    """The facts of one aggregation as ``ledger.json`` has them; arrays become lists."""
    found = {
        "name": step.name,
        "aggregating_tier": step.tier,
        "message_bound_per_leaf": step.message_norm.tolist(),
        "device_noise_std_per_leaf": step.device_std.tolist(),
        "node_noise_std": [std.tolist() for std in step.node_std],
        "channel_noise_std": [std.tolist() for std in step.channel_std],
        "tells_who_was_drawn": step.reveals_draw,
        "repeats_hidden_steps_per_leaf": step.resends.tolist(),
    }
    if step.takes_part is not None:
        found["takes_part_per_leaf"] = step.takes_part.tolist()
    if step.leaf_broadcasts is not None:
        found["also_broadcasts_per_leaf"] = step.leaf_broadcasts.tolist()
    return found
