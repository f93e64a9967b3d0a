"""The words, colours and signs of the API's vocabulary: states, severities, actions, devices, hints.

What kinds and codes of events mean is told by the API itself, from the catalogue.
"""

from typing import Literal, TypeAlias

# Worst first: the order of every list of nodes. The words follow a count.
STATES = {
    "faulty": "faulty",
    "out": "out of service",
    "at_risk": "at risk",
    "cordoned": "cordoned by us",
    "silent": "silent",
    "ok": "well",
}
STATE_MEANINGS = {
    "faulty": "a fatal hardware fault in the last 24 h",
    "out": "the scheduler has taken it out of service",
    "at_risk": "likely to fail within a day",
    "cordoned": "kept free of new work at our request",
    "silent": "no word from it for 15 minutes while others report: not the same as well",
    "ok": "nothing known against it",
}
# Readable on white and on black, and told apart without green and red alone.
STATE_COLOURS = {
    "faulty": "#d6403b",
    "out": "#8454a6",
    "at_risk": "#e9a11a",
    "cordoned": "#3b7dd8",
    "silent": "#8d949c",
    "ok": "#3a9d74",
}
STATE_MARKS = {"faulty": "✕", "out": "–", "at_risk": "!", "cordoned": "▪", "silent": "?", "ok": ""}
Tint: TypeAlias = Literal["red", "orange", "blue", "green", "violet", "gray"]
STATE_TINTS: dict[str, Tint] = {
    "faulty": "red",
    "out": "violet",
    "at_risk": "orange",
    "cordoned": "blue",
    "silent": "gray",
    "ok": "green",
}
SEVERITY_COLOURS = {"fatal": "#d6403b", "error": "#dd6b20", "warning": "#c98a12", "info": "#8d949c"}

ACTIONS = {
    "none": "nothing",
    "watch": "watch it",
    "restart_app": "restart the job",
    "reset_gpu": "reset the GPU",
    "reset_fabric": "reset the NVSwitch fabric",
    "reboot_node": "reboot the node",
    "drain_node": "drain the node",
    "run_diagnostics": "run diagnostics",
    "replace_part": "replace the part",
    "contact_support": "call the vendor",
}
DEVICES = {
    "gpu": "GPU",
    "nvswitch": "NVSwitch",
    "hca": "fabric adapter",
    "nic": "network adapter",
    "port": "port",
    "switch": "switch",
    "npu": "NPU",
    "hpu": "accelerator",
    "cpu": "processor",
    "dimm": "memory module",
    "pci": "PCIe device",
}
HINT_TINTS: dict[str, Tint] = {
    "proposed": "orange",
    "approved": "blue",
    "sent": "blue",
    "confirmed": "violet",
    "shadow": "gray",
}
HINT_STATES = {
    "shadow": "written down, never sent",
    "proposed": "waits for approval",
    "approved": "approved, about to be sent",
    "sent": "the scheduler has been told",
    "confirmed": "read back from the scheduler",
    "withdrawn": "taken back",
    "expired": "its time is over",
    "released": "the node is well again",
}
MODES = {
    "shadow": "shadow: hints are written down, never sent to the scheduler",
    "approve": "approve: a hint goes to the scheduler once a person approves it",
    "act": "act: hints go to the scheduler by themselves, within the budgets",
}
