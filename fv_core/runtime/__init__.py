"""The runtime owns the lifecycle of loops; it knows no model, no sampler and no training."""
