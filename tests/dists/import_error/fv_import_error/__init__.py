"""Raises when it is imported, after a module of its own was."""

from fv_import_error import half  # type: ignore[import-not-found]

fv_api = 1

raise RuntimeError(f"{half.NAME} does not work here")
