"""What a trained policy and its safety critic are worth."""
