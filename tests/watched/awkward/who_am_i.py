"""Prints what a script can know of how it was started."""

import atexit
import os
import sys
import threading

import beside.inner

print("argv", sys.argv)
print("file", __file__)
print("name", __name__)
print("spec", __spec__)
print("package", __package__)
print("loader", type(__loader__))
print("path", sys.path[0])
print("folder", os.getcwd())
print("neighbour", beside.inner.__file__, beside.inner.WHOSE)
print("flags", sys.flags)
print("warnings", sys.warnoptions, "options", sys._xoptions)
print("threads", [thread.name for thread in threading.enumerate()])
print("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace())
print("streams", sys.stdin.encoding, sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.write_through)
print("limit", sys.getrecursionlimit(), "parent knows me", os.getppid() > 1)
print("main", sys.modules["__main__"].__dict__ is globals())
print(sorted(name for name in globals() if name.startswith("__")))
print("to stderr", file=sys.stderr)
atexit.register(print, "last words")
