"""Many trainings, in search of better settings: `learnproof sweep`.

space     which settings are searched, and where: ranges and choices by dotted name
plan      everything that decides a sweep: sweep.toml in its folder
study     Optuna's side: what to try next, what to give up, what a kill left behind
trial     one trial: a run for each seed, with its verdict and its score
records   what became of the trials, which is best, and results.json
running   the sweep itself
"""
