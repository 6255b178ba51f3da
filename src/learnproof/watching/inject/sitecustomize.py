"""Found by Python at start-up because `learnproof watch` put this folder first on PYTHONPATH.

It starts the watcher and then hands over to whatever sitecustomize the interpreter would have found without us.
"""

import os
import sys


def _start_watching() -> None:
    folder = os.environ.get("LEARNPROOF_WATCH")
    if not folder:
        return
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "_learnproof_watching", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_learnproof_watching"] = module
    spec.loader.exec_module(module)
    module.begin(folder)


def _hand_over() -> None:
    """Run the sitecustomize that we hide, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != here]
    sys.path[:] = others
    import importlib.machinery

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _start_watching()
except Exception as error:
    if os.environ.get("LEARNPROOF_WATCH_DEBUG"):
        raise
    try:  # the launcher reads this; the script must not notice
        with open(os.path.join(os.environ["LEARNPROOF_WATCH"], "not_started.txt"), "a") as file:
            file.write(f"{type(error).__name__}: {error}\n")
    except Exception:
        pass
_hand_over()
