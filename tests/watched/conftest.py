"""One folder of watched runs for all testing processes, in pytest's own temporary folder."""

import pytest
import watched_runs


@pytest.fixture(scope="session", autouse=True)
def shared_runs(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "watched"
    folder.mkdir(exist_ok=True)
    watched_runs.shared[:] = [folder]
