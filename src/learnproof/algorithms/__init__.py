"""How it is learnt: learners, and the pure mathematics under them."""
