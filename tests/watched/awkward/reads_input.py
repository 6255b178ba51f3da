"""Asks questions on standard input, then reads the rest of it."""

import sys

name = input("name? ")
print("hello", name)
print("bytes", sys.stdin.buffer.read(5))
for number, line in enumerate(sys.stdin):
    print(number, line.rstrip())
try:
    input("more? ")
except EOFError as error:
    print("nothing more:", error)
