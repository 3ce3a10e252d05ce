"""Who takes the next step: the contract, fv's own order, and those of others to measure against."""
