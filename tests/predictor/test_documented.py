"""What docs/predictor.md says of the features is so."""

import re
from pathlib import Path

from predictor.dataset.matrix import FIXED
from predictor.history.families import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs/predictor.md").read_text(encoding="utf-8")


def test_the_page_says_how_many_features_and_families_there_are() -> None:
    """A family more is seven features or so."""
    found = re.search(r"(\d+) features, of (\d+) families of events and of what else is known", PAGE)
    assert found is not None
    assert (int(found[1]), int(found[2])) == (len(FIXED), len(FAMILIES))


def test_the_page_names_every_family() -> None:
    """In the table of what counts together."""
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) >= {family.name for family in FAMILIES}
