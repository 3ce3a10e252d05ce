"""Execution: from the calls of many runs to the forwards of a component."""
