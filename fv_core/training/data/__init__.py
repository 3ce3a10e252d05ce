"""Where clips and captions come from; `SOURCES` of the trainer names the kinds."""
