"""Scores of clips by rule or model."""
