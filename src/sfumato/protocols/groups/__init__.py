"""Rounds of overlapping groups, each with a model and a master of its own.

Only `sfumato.protocols` and audits import this package.

    base          the protocol that all of them share, and the table of round functions
    state         what is remembered between rounds
    operations    train, clip, noise, send, release: what rounds are made of
    compressed_messages  which coordinates of messages are sent, and in how many bits
    dp_ogl        a round of DP-OGL
    dp_ogl_plus   a round of DP-OGL+
    dp_ogl_local  a round of dp-ogl-local
    ms_fedavg     a round of MS-FedAvg
"""
