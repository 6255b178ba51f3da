"""A file that happens to be called gym, and fails."""


def prepare():
    raise RuntimeError("this gym is closed")


prepare()
