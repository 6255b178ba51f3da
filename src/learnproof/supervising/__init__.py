"""Has a stranger's training watched and judged: starts it or joins it, follows its evidence, ends with a verdict.

launch.py      `learnproof watch -- python their_script.py ...`
joining.py     `with learnproof.watch(model, optimizer) as proof:` in one's own loop
callbacks.py   for Stable-Baselines3, Hugging Face Trainer and Lightning: they join at the start, and judge at the end
following.py   evidence read while it is being written
conclusion.py  evidence -> verdict.json, picture, report
"""
