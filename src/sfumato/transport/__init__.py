"""How messages travel: secure aggregation, elections, the signed frames both are made of, and what parties
remember of their answers."""
