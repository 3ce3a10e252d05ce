"""Requests: the values that a run of a card takes."""
