"""Predicts what each component needs beside its weights, in bytes."""
