"""Sends itself a signal while an environment is running."""

import os
import signal
import sys
import time

from little_env import Line

how = sys.argv[1]


def on_interrupt(number, frame):
    print("interrupted by", signal.Signals(number).name, "in", frame.f_code.co_name, flush=True)
    sys.exit(3)


if how == "handler":
    signal.signal(signal.SIGINT, on_interrupt)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM), flush=True)
env = Line()
env.reset(seed=0)
for number in range(40):
    ended, cut = env.step(1)[2:4]
    if ended or cut:
        env.reset()
    if number == 20:
        print("sending", flush=True)
        if how == "handler":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        elif how == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        elif how == "abort":
            os.abort()
print("not reached")
