"""Reads its arguments with argparse, which complains in its own words."""

import argparse


def main():
    parser = argparse.ArgumentParser(description="Trains nothing.")
    parser.add_argument("environment", choices=["line", "maze"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rates", type=float, nargs="*", default=[])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    print(vars(parser.parse_args()))


if __name__ == "__main__":
    main()
