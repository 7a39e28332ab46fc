"""Training and scoring: models, batches, gradients, optimizers. Knows nothing of networks or noise."""
