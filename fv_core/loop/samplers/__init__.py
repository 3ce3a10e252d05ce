"""Samplers as pure functions over typed state, and the sigma grids they run on."""
