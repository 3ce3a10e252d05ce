"""Imports what only its extra brings."""

import fv_absent_codecs  # type: ignore[import-not-found]

fv_api = 1
CODECS = fv_absent_codecs
