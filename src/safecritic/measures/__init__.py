"""What is measured of finished runs. No JAX here."""
