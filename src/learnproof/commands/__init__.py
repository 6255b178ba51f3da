"""The commands, a file for each group: their arguments, and a few lines that call the module which does the job.

A command's file is imported when it is asked for, and torch and all else that is heavy when it runs: `learnproof --help` answers at once.

command         what a command is; exit codes
settings_file   --config, read before the rest
training        train, resume, evaluate
judging         verify, report, compare
watching        watch, follow
probing         probe
policies        export, enjoy: what is done with a trained policy
sweep           many trainings, in search of better settings
environments    envs
"""
