"""How devices' messages reach the leaves of a tree: one by one, summed up under masks, or in the air."""
