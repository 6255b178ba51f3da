"""The compiled backend: the same learners, with their arithmetic in machine code.

    applies.py      which runs it can take over, and why not the others
    kernel.py       the decorator: sums in any order, NaN kept
    towers.py       an MLP forwards and backwards, on one flat vector
    heads.py        log-probabilities, entropies, their derivatives, and drawing actions
    objectives.py   what PPO's and REINFORCE's losses pull at, row by row
    adam.py         clipping and Adam, one pass over the vector
    network.py      an actor-critic and its buffers, as arrays that the kernels take
    advantages.py   generalised advantage estimation
    descending.py   passes over a rollout's minibatches: all of the above in one call
    collecting.py   a whole rollout in one call, where the environment is a kernel too
    q_learning.py, soft.py                    gradient steps of DQN and of SAC (soft_numbers.py, soft_choices.py: what differs between actions)
    on_policy.py, off_policy.py               the four learners on these kernels
    acting.py, acting_off_policy.py           actions without torch
    threads.py      how many of them the products take

A learner's state stays where it is: the flat vector that its torch module aliases (policies/flat.py), Adam's moments, the named
generators. Kernels work on NumPy views of those, so that checkpoints, evaluation and export see one truth, and a learner of
either backend loads the other's state. Every kernel takes float32 or float64; tests hold it to the torch backend in both.
"""
