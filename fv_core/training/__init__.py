"""Training: a client of the engine, with optimizers, losses, data and checkpoints, and no sampler of its own."""
