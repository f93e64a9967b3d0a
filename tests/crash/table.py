"""One table of the crash tests' rounds, in Markdown, from what CRASH_TABLE collected.

CRASH_ROUNDS=100 CRASH_TABLE=/tmp/rounds.jsonl pytest -n0 -m crash tests/crash
python tests/crash/table.py /tmp/rounds.jsonl
"""

import json
import sys
from pathlib import Path


def table(rows: list[dict[str, int | str]]) -> str:
    """The table of some rows; the rows of one misfortune are one."""
    found: dict[str, list[int]] = {}
    for row in rows:
        sums = found.setdefault(str(row["what"]), [0, 0, 0, 0])
        for place, name in enumerate(("rounds", "written", "missing", "doubled")):
            sums[place] += int(row[name])
    lines = ["| misfortune | rounds | written | lost | doubled |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {what} | {' | '.join(f'{n:,}' for n in sums)} |" for what, sums in found.items()]
    totals = [sum(column) for column in zip(*found.values(), strict=True)]
    return "\n".join([*lines, f"| all | {' | '.join(f'{n:,}' for n in totals)} |"])


if __name__ == "__main__":
    print(table([json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]))  # noqa: T201
