"""Radio links without any learning: budgets, fading, rates, who transmits when, where devices are.

Everything is a pure function of numbers and arrays. Units are in the names: ``_db`` and ``_dbm`` are
logarithmic, ``_w`` watts, ``_hz`` hertz, ``_s`` seconds, ``_m`` metres, ``_bps`` bits a second; a gain, an
SNR or a share without any is a linear power ratio, a *magnitude* a linear amplitude ratio.
"""
