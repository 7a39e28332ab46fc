"""How devices' messages reach the leaves of a tree.

Only `sfumato.protocols.tree` and audits import this package.

    base        the interface of uplinks, and what leaves receive
    registry    the uplink of a plan
    plain       messages one by one
    secure      messages as integers, summed under masks
    air         messages superposed in the air
    compressed  only some coordinates of a message, carried by another uplink
"""
