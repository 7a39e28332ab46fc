"""Radio links and what messages cost, without any learning: rates, who sends when, energy, delay, bytes.

``schedule`` and everything above it import from here; here only ``network``, ``spec`` and
``secure_aggregation`` are imported. Most is pure functions of numbers and arrays. Units are in the names:
``_db`` and ``_dbm`` are logarithmic, ``_w`` watts, ``_hz`` hertz, ``_s`` seconds, ``_m`` metres, ``_bps``
bits a second; a gain, an SNR or a share without any is a linear power ratio, a *magnitude* a linear amplitude
ratio.

    channels         the links of a spec: placed once, faded anew every round, and the laws of both
    cells            the air of cells in one round: who transmits when, how long and with how much energy
    costs            energy, time and bytes of messages, by links and wires
    group_costs      the same between workers and masters of groups
    secagg_traffic   what secure aggregation sends
"""
