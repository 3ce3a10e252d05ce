"""Parity: recordings of runs, their comparison with a reference, gates on a card's conduct, and certificates.

Knows engines and jobs; no model, no reference: those are named by the card.
"""
