"""python -m little_package.main"""

import os
import sys

from . import play, settings
from .learner import play as same

if __name__ == "__main__":
    print(__name__, __package__, __spec__.name, type(__loader__), os.path.basename(__file__))
    print(sys.argv[1:], os.path.basename(sys.argv[0]), sys.path[0] == os.getcwd())
    print(play is same, settings.__name__, play())
