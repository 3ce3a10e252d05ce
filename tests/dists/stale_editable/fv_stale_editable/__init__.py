"""Installed editable from a folder that a test takes away."""

fv_api = 1
