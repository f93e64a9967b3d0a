"""The network systems: one line here, one file beside it, lines in `fixtures/switch`.

Tried in this order; the first that decodes a message has it.
"""

from parsers.switch_systems import cumulus, junos, mnemonic, sonic
from parsers.switch_systems.system import System

SYSTEMS: tuple[System, ...] = (
    mnemonic.SYSTEM,
    sonic.SYSTEM,
    cumulus.SYSTEM,
    junos.SYSTEM,
)
