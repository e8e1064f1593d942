"""Agents: modules of pure functions (init, act, observe, update, end_episode, values, policy)."""
