"""Flower as what carries the frames of `deploy --local`: bytes, signed from end to end.

    environment   Flower's own Python environment: where it is, and how it is made
    relay_user    the user that it runs under
    certificates  TLS certificates of SuperLinks, registered keys of SuperNodes
    relays        all processes of Flower: a SuperLink a level, a SuperNode a child
    keeper        starts these processes, and ends them

The folder ``app`` is a Flower app, which runs in that environment and imports nothing of ours.
"""
