"""The licences of what a site installs, read from uv.lock and from what the installed packages say of themselves.

PYTHONPATH=tests python tests/licences.py    # writes docs/licences.md; exit 1: a licence is on no list
"""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
OWN = "foreshock"
# What may be shipped beside Apache-2.0 without a second thought.
PERMISSIVE = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib"}
)
# Weak copyleft that is known and wanted: what it asks of who passes the package on.
KNOWN_COPYLEFT = {
    "certifi": ("MPL-2.0", "a list of authorities; its own files stay under MPL"),
    "orjson": ("MPL-2.0 AND (Apache-2.0 OR MIT)", "its own files stay under MPL"),
    "psycopg": ("LGPL-3.0-only", "used as a library that can be replaced; needed for PostgreSQL alone"),
    "psycopg-binary": ("LGPL-3.0-only", "the same, with libpq built in"),
}
# Old packages say it in words of their own: read in their licence files.
_WORDS = {
    "Apache 2.0": "Apache-2.0", "Apache License 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}  # fmt: skip
# Not installed here: of another platform. As the package index shows it.
_ELSEWHERE = {"httpx2-jsfetch": "BSD-3-Clause"}


@dataclass(frozen=True, slots=True)
class PackageLicence:
    """A package that a site installs, the extras that bring it, and its licence; None where nobody says one."""

    name: str
    extras: tuple[str, ...]
    licence: str | None

    @property
    def trouble(self) -> str | None:
        """Why it may not be shipped without a look; None where it may."""
        if self.name in KNOWN_COPYLEFT:
            expected = KNOWN_COPYLEFT[self.name][0]
            return None if self.licence == expected else f"{self.name}: {self.licence}, it was {expected}"
        if self.licence is None:
            return f"{self.name}: no licence is named"
        words = self.licence.replace("(", " ").replace(")", " ").split()
        unknown = [word for word in words if word not in ("AND", "OR") and word not in PERMISSIVE]
        return f"{self.name}: {self.licence}" if unknown else None


def installed() -> list[PackageLicence]:
    """Every package of the lock that a site may install, by name."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    packages: dict[str, list[dict[str, Any]]] = {}
    for package in lock["package"]:
        packages.setdefault(package["name"], []).append(package)
    extras = [name for name in packages[OWN][0]["optional-dependencies"] if name != "dev"]
    brought: dict[str, set[str]] = {}
    for extra in ("", *extras):
        for name in _reached(packages, extra):
            brought.setdefault(name, set()).add(extra)
    return [
        PackageLicence(name, () if "" in by else tuple(sorted(by)), licence_of(name))
        for name, by in sorted(brought.items())
    ]


def _reached(packages: dict[str, list[dict[str, Any]]], extra: str) -> set[str]:
    """The packages that one extra brings; "" is what every installation has."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    left = [(OWN, (extra,) if extra else ())]
    while left:
        name, extras = one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        for package in packages[name]:
            own = [] if name == OWN and extra else package.get("dependencies", [])
            more = [item for key in extras for item in package.get("optional-dependencies", {}).get(key, [])]
            left += [(item["name"], tuple(item.get("extra", ()))) for item in (*own, *more)]
    return {name for name, _ in seen} - {OWN}


def licence_of(name: str) -> str | None:
    """What a package says of its licence."""
    try:
        said = metadata(name)
    except PackageNotFoundError:
        return _ELSEWHERE.get(name)
    return next((_WORDS.get(word, word) for word in _said(said)), None)


def _said(said: PackageMetadata) -> Iterator[str]:
    expression = said.get("License-Expression")
    if expression:
        yield expression
    classifiers = [word.split(" :: ")[-1] for word in said.get_all("Classifier") or () if word.startswith("License")]
    short = said.get("License") or ""
    if short and "\n" not in short and len(short) < 40:
        yield short
    if classifiers:
        yield " AND ".join(sorted({_WORDS.get(word, word) for word in classifiers}))


def page(found: list[PackageLicence]) -> str:
    """The text of docs/licences.md."""
    rows = [f"| {one.name} | {', '.join(one.extras) or 'always'} | {one.licence} |" for one in found]
    known = [f"| {name} | {licence} | {why} |" for name, (licence, why) in KNOWN_COPYLEFT.items()]
    return "\n".join(
        [
            "# Licences",
            "",
            "Foreshock is under the Apache License 2.0 (`LICENSE`), `foreshock-hook` too.",
            "This page is made by `make licences` from `uv.lock` and from what each package says of itself.",
            "A licence that is not permissive, and not in the first table, fails a test.",
            "`make sbom` writes the same packages with hashes as CycloneDX 1.5 (`build/foreshock.cdx.json`),",
            "and as a list for `pip install --require-hashes --no-deps -r` (`build/requirements.txt`).",
            "",
            "## Weak copyleft, known",
            "",
            "Nothing of it becomes part of Foreshock's own files; who passes these packages on keeps their licences.",
            "",
            "| package | licence | why it is no trouble |",
            "|---|---|---|",
            *known,
            "",
            "## Every package that an installation may have",
            "",
            "| package | comes with | licence |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Write the page; say what is in the way."""
    found = installed()
    PAGE.write_text(page(found), encoding="utf-8")
    trouble = [one.trouble for one in found if one.trouble]
    sys.stderr.writelines(f"{line}\n" for line in trouble)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
