"""Policies: choices that a card makes and several loops share."""
