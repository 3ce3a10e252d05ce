"""The training methods, one a file: what each trains, and its loss."""
