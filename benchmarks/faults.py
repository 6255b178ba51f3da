"""Does the verdict see real faults, and leave healthy programs alone?

    python benchmarks/faults.py [--part first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth] [--seeds 5] [--fault-seeds 1] [--only NAME] [--jobs 2]
    python benchmarks/faults.py --keep FOLDER [--again]     keep the evidence; judge it again with today's checks

Programs in benchmarks/faults/<part>/ train correctly by themselves; `--fault NAME` puts one real bug in, `--variant NAME` an
oddity that is healthy. Each is watched as a stranger's script would be. A row is kept per run in
benchmarks/results/faults.jsonl, so that an interrupted benchmark goes on where it was.

    recall    faulty programs that are not called `proven`; of those whose fault is in the loop, that are called `broken`
    family    of the broken ones, those where a check of the right family is among the findings
    alarms    healthy programs that are called `broken`
    proven    healthy programs, trained as long as they ask for, that are called `proven`

The parts after the first were written by hands that had not read the checks; figures are printed apart.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import Any

from watched_rows import Row, Rows, options_of, watch

HERE = Path(__file__).parent
PARTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
FAMILIES = {
    "losses_reach_weights": {"weights"},
    "weights_owned": {"weights"},
    "optimizers_step": {"weights", "rates"},
    "optimizers_fed": {"weights"},
    "gradients_cleared": {"weights", "signs"},
    "weights_changing": {"weights", "rates"},
    "finiteness": {"shapes", "rates"},
    "target_networks": {"targets"},
    "restores_something": {"targets", "rates"},
    "returns_recomputed": {"returns"},
    "bootstrap_recomputed": {"returns", "targets", "signs", "shapes"},
    "memory_true": {"returns", "goal", "shapes"},
    "ends_told": {"returns", "goal"},
    "credit_reaches_on": {"returns", "goal"},
    "ratio_is_one": {"shapes", "returns", "language", "signs"},
    "policy_direction": {"signs", "returns", "shapes"},
    "value_direction": {"signs"},
    "labels_direction": {"signs"},
    "actor_climbs": {"signs"},
    "entropy_sign": {"signs"},
    "critic_apart": {"signs"},
    "temperature_apart": {"signs", "weights"},
    "no_accidental_broadcast": {"shapes"},
    "distributions_fit": {"shapes"},
    "sampled_as_scored": {"shapes", "returns", "language"},
    "learning_rate_alive": {"rates"},
    "clipping_acts": {"rates"},
    "policy_looks": {"goal"},
    "tokens_masked": {"language"},
    "reference_apart": {"language", "signs"},
}
"""Which families of faults a check may name; a check that speaks of several things names several."""


def programs(part: str, seeds: int, fault_seeds: int) -> list[Row]:
    """Seed after seed, so that any prefix is spread over all of them."""
    found: list[Row] = []
    for path in sorted((HERE / "faults" / part).glob("*.py")):
        told = told_by(path)
        program = {"part": part, "script": path.stem}
        for fault, (family, expected, _) in told.get("FAULTS", {}).items():
            told_of = {"fault": fault, "variant": "", "family": family, "expected": expected}
            found += [{**program, **told_of, "seed": seed} for seed in range(fault_seeds)]
        for variant in told.get("HEALTHY", {}):
            told_of = {"fault": "", "variant": variant, "family": "", "expected": "proven"}
            found += [{**program, **told_of, "seed": seed} for seed in range(seeds)]
    return sorted(found, key=lambda row: int(row["seed"]))


def told_by(path: Path) -> dict[str, Any]:
    """The literal dicts FAULTS and HEALTHY of a program, without running it."""
    tree = ast.parse(path.read_text())
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("FAULTS", "HEALTHY")
    }


def measure(program: Row, keep: Path | None) -> Row:
    script = HERE / "faults" / program["part"] / f"{program['script']}.py"
    command = [sys.executable, str(script), "--seed", str(program["seed"])]
    command += ["--fault", program["fault"]] if program["fault"] else []
    command += ["--variant", program["variant"]] if program["variant"] else []
    return watch(command, keep)


def summarise(rows: list[Row], part: str) -> bool:
    mine = [row for row in rows if row["part"] == part]
    faulty = [row for row in mine if row["fault"]]
    healthy = [row for row in mine if not row["fault"]]
    if not mine:
        return True
    in_loop = [row for row in faulty if row["expected"] == "broken"]
    caught = [
        row for row in faulty if row["verdict"] != "proven" and (row["verdict"] == "broken" or row not in in_loop)
    ]
    named = [row for row in in_loop if any(row["family"] in FAMILIES.get(check, ()) for check in row["failed"])]
    broken = [row for row in in_loop if row["verdict"] == "broken"]
    alarms = [row for row in healthy if row["verdict"] == "broken"]
    proven = [row for row in healthy if row["verdict"] == "proven"]
    programs_ = {(row["script"], row["fault"]) for row in faulty}
    print(
        f"\n{part} part: {len(programs_)} faulty programs, {len({(r['script'], r['variant']) for r in healthy})} healthy ones"
    )
    print(f"  not proven           {_share([r for r in faulty if r['verdict'] != 'proven'], faulty)}")
    print(f"  recall               {_share(caught, faulty)}   (bar 0.95)")
    print(f"  right family named   {_share(named, broken)}   (bar 0.85)")
    print(f"  false alarms         {len(alarms)} of {len(healthy)}   (bar 0)")
    print(f"  healthy proven       {_share(proven, healthy)}   (bar 0.9)")
    for row in faulty:
        if row not in caught:
            print(f"    missed: {row['script']} {row['fault']} ({row['family']}): {row['verdict']}")
    for row in broken:
        if row not in named:
            print(f"    misnamed: {row['script']} {row['fault']} ({row['family']}): {', '.join(row['failed'])}")
    for row in alarms:
        print(
            f"    accused: {row['script']} {row['variant'] or 'plain'} seed {row['seed']}: {', '.join(row['failed'])}"
        )
    for row in healthy:
        if row["verdict"] == "unproven":
            print(
                f"    unproven: {row['script']} {row['variant'] or 'plain'} seed {row['seed']}: {row['missing'][0][:150] if row['missing'] else ''}"
            )
    met = len(caught) >= 0.95 * len(faulty) and len(named) >= 0.85 * len(broken) and not alarms
    return met and len(proven) >= 0.9 * len(healthy)


def _share(some: list[Any], all_: list[Any]) -> str:
    return f"{len(some)} of {len(all_)} = {len(some) / max(1, len(all_)):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each healthy program")
    parser.add_argument("--fault-seeds", type=int, default=1, help="seeds of each faulty program")
    parser.add_argument("--only", default="", help="programs whose script, fault or variant contains this")
    options = options_of(parser)
    rows = Rows("faults.jsonl", "part", "script", "fault", "variant", "seed")
    parts = [options.part] if options.part else list(PARTS)
    wanted = [
        program
        for part in parts
        for program in programs(part, options.seeds, options.fault_seeds)
        if options.only in f"{program['script']} {program['fault']} {program['variant']}"
    ]
    rows.carry_out(options, wanted, measure)
    met = [summarise(rows.rows, part) for part in parts]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
