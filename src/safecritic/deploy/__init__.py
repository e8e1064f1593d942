"""From run to robot: export a policy with its screen, contract and certificate."""
