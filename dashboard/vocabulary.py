"""The words, colours and signs of the API's vocabulary: states, severities, kinds, Xids, actions, devices, hints."""

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
KINDS = {
    "ecc_sbe": "corrected memory errors",
    "ecc_dbe": "uncorrectable memory error",
    "row_remap": "memory row remapped",
    "row_remap_failure": "memory row could not be remapped",
    "nvlink_crc": "NVLink transfer errors",
    "nvlink_replay": "NVLink transfers repeated",
    "pcie_replay": "PCIe transfers repeated",
    "thermal_violation": "slowed down by heat",
    "gpu_missing": "GPU vanished",
    "gpu_returned": "GPU came back",
    "gpu_lost": "GPU lost",
    "link_down": "fabric link down",
    "link_up": "fabric link up",
    "link_state_change": "fabric link changed state",
    "port_removed": "fabric port gone",
    "port_discovered": "fabric port found",
    "sm_state": "subnet manager changed state",
    "sm_error": "subnet manager error",
    "training_error": "training program error",
    "training_start": "training started",
    "training_end": "training ended",
    "checkpoint_load": "checkpoint loaded",
    "checkpoint_save": "checkpoint saved",
    "checkpoint_save_start": "checkpoint save began",
    "iteration": "training step",
    "job": "job record of the scheduler",
    "outage": "outage record of the scheduler",
}
DEVICES = {
    "gpu": "GPU",
    "nvswitch": "NVSwitch",
    "hca": "fabric adapter",
    "port": "port",
    "switch": "switch",
    "npu": "NPU",
}
# What the driver's line leaves unsaid, after NVIDIA's Xid catalogue; a code that is not here stands for itself.
XIDS = {
    13: "compute exception of the program",
    31: "program touched forbidden memory",
    32: "command stream rejected",
    43: "program's work reset, GPU survives",
    45: "torn down after another fault",
    48: "uncorrectable memory error",
    62: "power controller halted",
    63: "memory row retired",
    64: "memory row could not be retired",
    69: "misuse by the program",
    74: "NVLink error",
    79: "GPU unreachable over PCIe",
    92: "many corrected memory errors",
    94: "memory error, contained to one program",
    95: "memory error, not contained",
    109: "context switch timed out",
    119: "GPU system processor does not answer",
    120: "GPU system processor crashed",
    140: "uncorrectable memory error",
    143: "GPU could not be initialised",
    154: "driver asks for another recovery",
}
HINT_TINTS: dict[str, Tint] = {"proposed": "orange", "approved": "blue", "sent": "blue", "shadow": "gray"}
HINT_STATES = {
    "shadow": "written down, never sent",
    "proposed": "waits for approval",
    "approved": "approved, about to be sent",
    "sent": "the scheduler has it",
    "withdrawn": "taken back by a person",
    "expired": "ran out before it was acted on",
    "released": "the node is well again",
}
MODES = {
    "shadow": "shadow: hints are written down, never sent to the scheduler",
    "approve": "approve: a hint goes to the scheduler once a person approves it",
    "auto": "auto: hints go to the scheduler by themselves, within the budgets",
}
