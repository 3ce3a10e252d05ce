"""Made for a later core; importing it would be the mistake."""

raise AssertionError("imported although its metadata excludes this core")
