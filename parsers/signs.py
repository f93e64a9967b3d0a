"""What tells a line of interest from all the others, so that a log can be searched as a block of bytes.

Almost every line of a kernel log says nothing. A format that names its signs lets `parsers/scan.py` pass over a line
unread; what comes out is the same as if every line had been fed.
"""

import re
from dataclasses import dataclass

# Matches no line.
NEVER = r"(?!)"


@dataclass(frozen=True, slots=True)
class Signs:
    """A format's signs.

    Attributes:
        literals: ASCII. A line without any of them gives nothing and changes nothing that a later line is read by.
        starts: lines that begin so belong with others, whatever they hold: a record of several lines, a time that
            counts from the line before. A pattern that RE2, Hyperscan and `re` read alike, without groups; "" for none.
            The line before such a line is read too.
        within: lines that may go on with what such a line began; they are read up to and with the first other line.
    """

    literals: tuple[str, ...]
    starts: str = ""
    within: re.Pattern[str] = re.compile(NEVER)
