"""The policy of a file: its keys and values, each checked for its name, its type and what it contradicts."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from cli.config.fill import check_keys, fill, mapping
from cli.console.errors import Failure
from schedulers.policy.settings import Policy, QuietHoursError, Validity, read_quiet_hours

POLICY_KEYS = tuple(f.name for f in fields(Policy))
FORM = 1
_KEY_PART = re.compile(r"\[\d{1,6}\]|[^\[\]]+")
_UNKNOWN = re.compile(r"unknown key '([^']*)'")


def policy_of(table: Mapping[str, Any], place: str) -> Policy:
    """The policy of a table, which may hold keys of other things too.

    Raises:
        Failure: an unknown key, a value of the wrong type, or values that contradict each other; names place and key.
    """
    policy = fill(Policy, {key: table[key] for key in POLICY_KEYS if key in table}, place)
    if policy.version != FORM:
        raise Failure(f"{place}, version: this program reads policies of form {FORM}, not {policy.version}")
    _check_numbers(policy, place)
    _check_release(policy, place)
    _check_hours(policy, place)
    return policy


def check_policy_file(table: Mapping[str, Any], place: str) -> None:
    """A file that holds a policy alone has no other keys, and says of which form it is.

    Raises:
        Failure: it does not.
    """
    check_keys(table, POLICY_KEYS, place)
    if "version" not in table:
        raise Failure(f"{place}: no key 'version': begin the file with `version: {FORM}`")


def read_yaml(file: Path) -> Mapping[str, Any]:
    """The keys and values of a file.

    Raises:
        Failure: it cannot be read, or is no YAML; names file, and line where there is one.
    """
    try:
        return mapping(yaml.safe_load(file.read_text(encoding="utf-8")), str(file))
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:  # its whole text quotes the line, which may hold a secret
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise Failure(f"{file}{line} is no YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise Failure(f"{file} is no YAML: {' '.join(str(error).split())}") from error


@contextmanager
def located(file: Path | None) -> Iterator[None]:
    """A Failure that begins with `FILE, KEY, KEY:` is raised as `FILE:LINE, KEY, KEY:`, so that it is found at once."""
    try:
        yield
    except Failure as error:
        line = None if file is None else _line_of(file, error.message)
        if line is None:
            raise
        raise Failure(f"{file}:{line}{error.message.removeprefix(str(file))}") from error


def _line_of(file: Path, message: str) -> int | None:
    """The line of the last key that a message names, as far as they are there."""
    keys, _, told = message.removeprefix(str(file)).partition(": ")
    unknown = _UNKNOWN.match(told)
    if not message.startswith((f"{file}, ", f"{file}: unknown key")):
        return None
    words = [word for key in keys.removeprefix(", ").split(", ") for word in _KEY_PART.findall(key)]
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    line = None
    for word in [*words, *([unknown[1]] if unknown else [])]:
        found = _below(node, word)
        if found is None:
            break
        mark, node = found
        line = mark.start_mark.line + 1
    return line


def _below(node: Any, word: str) -> tuple[Any, Any] | None:
    """What bears the line of a key (or of an item, `[2]`) of a node, and the node that it leads to."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == word), None)
    if isinstance(node, yaml.SequenceNode) and word.startswith("[") and int(word[1:-1]) < len(node.value):
        return node.value[int(word[1:-1])], node.value[int(word[1:-1])]
    return None


def _check_numbers(policy: Policy, place: str) -> None:
    limits = policy.thresholds
    set_steps = [step for step in (limits.watch, limits.avoid, limits.checkpoint) if step is not None]
    if not all(limits.watch <= step <= 1.0 for step in set_steps):
        raise Failure(
            f"{place}, thresholds: watch <= avoid <= 1 and watch <= checkpoint <= 1 must hold: they are probabilities"
        )
    if limits.release_ratio >= 1.0:
        raise Failure(f"{place}, thresholds, release_ratio: must be under 1, or hints flap")
    if policy.control.percent > 50.0:
        raise Failure(f"{place}, control, percent: at most 50 % of the nodes may be left alone")
    least = policy.shared_causes.probability
    if least is not None and not 0.5 <= least <= 1.0:
        raise Failure(f"{place}, shared_causes, probability: 0.5 to 1, or null: then no verdict counts")
    if policy.quorum > 1.0:
        raise Failure(f"{place}, quorum: a share of the nodes, 0 to 1")
    if policy.costs.averted > 1.0:
        raise Failure(f"{place}, costs, averted: a share of the failures, 0 to 1")
    for name in ("job_gpus", "node_gpus"):
        if getattr(policy.costs, name) < 1:
            raise Failure(f"{place}, costs, {name}: at least 1")
    for field in fields(Validity):
        if getattr(policy.validity, field.name) <= 0:
            raise Failure(f"{place}, validity, {field.name}: a hint must be valid for a while")


def _check_release(policy: Policy, place: str) -> None:
    release = policy.release
    for name in ("most_tries", "at_once"):
        if getattr(release, name) < 1:
            raise Failure(f"{place}, release, {name}: at least 1, or what is held stays so for ever")
    if release.timeout_s <= 0:
        raise Failure(f"{place}, release, timeout_s: a test needs a while")
    if release.validate and not release.validate[0].strip():
        raise Failure(f"{place}, release, validate: the first word is the command")


def _check_hours(policy: Policy, place: str) -> None:
    for text in policy.quiet_hours:
        try:
            read_quiet_hours(text)
        except QuietHoursError as error:
            raise Failure(f"{place}, quiet_hours: {error}") from error
    if any(not pattern for pattern in policy.opt_out):
        raise Failure(f"{place}, opt_out: an empty pattern fits no node: take it out")
