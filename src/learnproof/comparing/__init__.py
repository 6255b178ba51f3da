"""Which of several runs is better, and how sure that is.

sources    runs of learnproof, monitor.csv files of Stable-Baselines3 and TensorBoard files, each read into a training curve
ranking    interquartile means, their intervals, and how often one group's run beats another's
"""
