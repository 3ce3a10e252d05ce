"""Switches the kit's fixtures on: a small card, and engines to run it."""

pytest_plugins = ["fv_core.testing"]
