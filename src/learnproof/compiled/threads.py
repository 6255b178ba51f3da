"""How many threads the products take. OpenBLAS takes every core by itself, and waiting for each other costs small ones more than it gains."""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def set_threads(count: int) -> None:
    import scipy.linalg.cython_blas  # noqa: F401 (whose BLAS np.dot in a kernel is; only what is loaded can be told)

    threadpool_limits(count, user_api="blas")
