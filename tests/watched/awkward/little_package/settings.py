"""Numbers of the player."""

ENVIRONMENT = "CartPole-v1"
SEED = 3
STEPS = 12
