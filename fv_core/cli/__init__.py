"""The command line `fv`: one module per verb, none of which loads torch before a request has been checked."""
