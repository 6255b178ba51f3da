"""Commands that are too long for cli.py: their arguments, and a few lines that call the module which does the job.

Like cli.py they import torch and all else that is heavy when they run: `learnproof --help` answers at once.

policies   export, enjoy: what is done with a trained policy
sweep      many trainings, in search of better settings
"""
