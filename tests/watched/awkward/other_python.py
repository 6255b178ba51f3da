"""Starts other interpreters: one that trains, one without our environment variables, one that fails."""

import subprocess
import sys

CODE = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(model.weight.tolist(), model.bias.tolist())
"""

for command, options in [
    ([sys.executable, "-c", CODE], {}),
    ([sys.executable, "-c", "import sys; print(sys.flags.no_site, sys.argv)", "a"], {"env": {}}),
    ([sys.executable, "-I", "-c", "print('alone')"], {}),
    ([sys.executable, "-c", "raise SystemExit('no')"], {}),
    ([sys.executable, "-c", "import os; os.abort()"], {}),
    (["sh", "-c", "exit 4"], {}),
]:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    print(done.returncode, repr(done.stdout), repr(done.stderr))
