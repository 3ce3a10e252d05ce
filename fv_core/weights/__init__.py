"""Weights: where they lie, how they are fetched, and the strict way into a module. It knows no model."""
