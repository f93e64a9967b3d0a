"""Check a pack of evidence with Python's own library: python3 verify.py [--key PUBLIC.pem] [--audit AUDIT.jsonl]

Every file is as the manifest says; with --key (and openssl) the manifest is signed by it; with --audit, an export of
the site's audit, the site wrote down that it made this very manifest.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path


def faults(folder: Path, key: str | None, audit: str | None) -> list[str]:
    """What is wrong with the pack in a folder; nothing where it is whole."""
    manifest = (folder / "manifest.json").read_bytes()
    files: dict[str, str] = json.loads(manifest)["files"]
    # The verifier's own, also where they lie here.
    own = [Path(name).resolve() for name in (key, audit) if name is not None]
    there = {path.name for path in folder.iterdir() if path.resolve() not in own} - {"manifest.json", "manifest.sig"}
    found = [f"{name!a}: the manifest does not name it" for name in sorted(there - files.keys())]
    found += [f"{name!a}: it is missing" for name in sorted(files.keys() - there)]
    for name in sorted(there & files.keys()):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != files[name]:
            found.append(f"{name!a}: it was changed")
    if key is not None:
        words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin", "-in", f"{folder}/manifest.json"]
        words += ["-sigfile", f"{folder}/manifest.sig"]
        done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603  # the words are ours
        found += [] if done.returncode == 0 else [f"manifest.json: {key} has not signed it"]
    if audit is not None:
        rows = [json.loads(line) for line in Path(audit).read_text(encoding="ascii").splitlines()]
        made = [row for row in rows if row.get("action") == "rma"]
        if hashlib.sha256(manifest).hexdigest() not in [row["detail"]["manifest"] for row in made]:
            found.append("manifest.json: the site's audit does not know it")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--key")
    parser.add_argument("--audit")
    told = parser.parse_args()
    wrong = faults(Path(__file__).parent, told.key, told.audit)
    sys.stdout.write("\n".join(wrong or ["whole"]) + "\n")
    sys.exit(1 if wrong else 0)
