"""Radio links and what messages cost, without any learning: rates, who sends when, energy, delay, bytes.

``schedule`` and everything above it import from here; here only ``network``, ``spec`` and
``secure_aggregation`` are imported. Most is pure functions of numbers and arrays. Units are in the names:
``_db`` and ``_dbm`` are logarithmic, ``_w`` watts, ``_hz`` hertz, ``_s`` seconds, ``_m`` metres, ``_bps``
bits a second; a gain, an SNR or a share without any is a linear power ratio, a *magnitude* a linear amplitude
ratio.

    channels         the links of a spec: placed once, faded anew every round
    cells            the air of cells in one round
    costs            energy, time and bytes of messages, by links and wires
    group_costs      the same between workers and masters of groups
    access           who transmits when: in turns, side by side, or all at once
    link_budget      how much transmitted power arrives, and how much noise with it
    fading           how a gain varies from round to round
    placement        where devices are
    message_sizes    how much of a message compression lets through
    secagg_traffic   what secure aggregation sends
    units            decibels and watts
"""
