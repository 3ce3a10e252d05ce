"""Records: where a result comes from, what was measured of a card, and whether that still holds."""
