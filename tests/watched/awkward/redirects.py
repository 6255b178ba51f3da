"""Sends its own output elsewhere, logs, and closes its streams before it ends."""

import atexit
import contextlib
import io
import logging
import os
import sys

import torch
from little_training import network, train

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s %(filename)s:%(lineno)d %(message)s")
logging.captureWarnings(True)
logging.info("handlers %d, level %d", len(logging.root.handlers), logging.root.level)
caught_out, caught_err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(caught_out), contextlib.redirect_stderr(caught_err):
    model = network()
    print(repr(train(model, torch.optim.Adam(model.parameters()), updates=20)))
    print("complaint", file=sys.stderr)
print(repr(caught_out.getvalue()), repr(caught_err.getvalue()))

sys.stdout.flush()
kept = os.dup(1)
reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(writing)
print(repr(train(model, torch.optim.SGD(model.parameters(), lr=0.1), updates=20)), flush=True)
os.system("echo from a shell")
os.dup2(kept, 1)
os.close(kept)
print("through the pipe:", os.read(reading, 10_000))
os.close(reading)
logging.getLogger("mine").warning("closing")
atexit.register(lambda: train(model, torch.optim.Adam(model.parameters()), updates=3))
sys.stdout.close()
sys.stderr.flush()
sys.stdout = None
