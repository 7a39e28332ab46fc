"""How messages travel: secure aggregation, elections, and the signed frames both are made of."""
