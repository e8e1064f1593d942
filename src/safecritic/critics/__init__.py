"""What a safety critic minimises: Bellman error, conservative term, influence, refinement."""
