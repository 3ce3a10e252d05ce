"""Snapshots: a job as one file, kept and taken up again."""
