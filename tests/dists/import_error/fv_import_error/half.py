"""The half that imports."""

NAME = "fv-import-error"
