"""Five megabytes on standard output, some of it in bytes, a part on standard error."""

import sys

for number in range(50_000):
    print(f"{number:08d} " + "x" * 70)
sys.stdout.flush()
for number in range(1000):
    sys.stdout.buffer.write(bytes([number % 256]) * 1000 + b"\n")
for number in range(2000):
    print("e" * 100, number, file=sys.stderr)
