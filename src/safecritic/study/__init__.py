"""Many runs: a grid of methods, tasks and seeds, and the table of its numbers."""
