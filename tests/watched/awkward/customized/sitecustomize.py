"""A user's own start-up file: it leaves a mark, and a finder of its own."""

import sys

sys.left_by_sitecustomize = {"file": __file__, "spec": __spec__.name, "module": sys.modules.get(__name__) is not None}
