"""Drawings of networks: trees, overlapping groups, moves.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    group_figure      overlapping groups
    group_graph       the group graph, and when releases arrive in other groups
    moving            who was under which edge, where devices move
    network_canvas    marks, links and words of a drawing of the network
    topology_figure   a tree
"""
