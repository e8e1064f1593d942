"""Equations and data structures: imports nothing of the house."""
