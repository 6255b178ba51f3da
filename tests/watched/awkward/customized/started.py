"""Asks whether the user's own sitecustomize ran, once and as itself."""

import importlib
import os
import sys

import sitecustomize

print(sys.left_by_sitecustomize)
print(sitecustomize.__file__, sitecustomize.__name__, sitecustomize.__doc__)
print(importlib.import_module("sitecustomize") is sitecustomize)
print(os.environ["PYTHONPATH"].split(os.pathsep)[-1])
print(sys.path[0] == os.path.dirname(__file__))
