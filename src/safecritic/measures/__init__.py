"""What is measured of finished runs. Only `runs`, which asks the trained critic, uses JAX."""
