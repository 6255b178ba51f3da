"""Ends in every way that sys.exit knows: in children of its own first, then as its argument says."""

import atexit
import subprocess
import sys
import threading

KINDS = ["zero", "seven", "message", "none", "true", "float", "twice", "thread", "falls-off", "raised-at-exit"]


class Fails:
    def __call__(self):
        return 1 / 0

    def __repr__(self):
        return "a callable that fails"


def leave(kind):
    atexit.register(print, "leaving", kind)
    if kind == "zero":
        sys.exit(0)
    elif kind == "seven":
        sys.exit(7)
    elif kind == "message":
        sys.exit("that is all")
    elif kind == "none":
        sys.exit(None)
    elif kind == "true":
        sys.exit(True)
    elif kind == "float":
        sys.exit(2.5)
    elif kind == "twice":
        try:
            sys.exit(1)
        finally:
            sys.exit(9)
    elif kind == "thread":
        thread = threading.Thread(target=sys.exit, args=(4,))
        thread.start()
        thread.join()
    elif kind == "raised-at-exit":
        atexit.register(Fails())


if sys.argv[1] == "all":
    for kind in KINDS:
        done = subprocess.run([sys.executable, __file__, kind], capture_output=True, text=True)
        print(kind, done.returncode, repr(done.stdout), repr(done.stderr))
else:
    leave(sys.argv[1])
