"""NVIDIA's library that fails, in the words of whichever program prints them."""

import pytest

from parsers.registry import detect, make_parser
from parsers.reports.nvml_failures import nvml_failure
from parsers.text.parser import Context, parse

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (MISMATCH, "nvrm_mismatch"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "nvrm_mismatch"),
        ("pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.", "nvrm_mismatch"),
        ("Failed to initialize NVML: Unknown Error", "node_service"),
        ("Failed to initialize NVML: ERROR_UNKNOWN", "node_service"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "node_service"),
        ("nvidia-container-cli: detection error: nvml error: unknown error: unknown", "node_service"),
        ("error creating nvml.Device 3: nvml: GPU is lost", "gpu_missing"),
        ("Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.", "gpu_missing"),
    ],
)
def test_a_failure_is_known_by_its_words(text: str, kind: str) -> None:
    """A version, a driver or a GPU."""
    failure = nvml_failure(text)
    assert failure is not None and failure.kind == kind
    assert failure.event("x", text).severity == ("error" if kind == "gpu_missing" else "warning")


def test_a_lost_gpu_is_named_where_the_line_names_it() -> None:
    """By its number or its address."""
    by_number, by_address = (
        nvml_failure("nvml.Device 3: nvml: GPU is lost"),
        nvml_failure("GPU 0000:C1:00.0: GPU is lost"),
    )
    assert by_number is not None and by_number.device.index == 3
    assert by_address is not None and by_address.device.pci == "0000:c1:00.0"


@pytest.mark.parametrize(
    "text",
    [
        "Failed to initialize NVML: could not load NVML library.",
        "Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
        "Loading NVML",
    ],
)
def test_a_node_without_gpus_and_an_image_that_asks_for_more_are_no_failure(text: str) -> None:
    """Programs look for the library wherever they run."""
    assert nvml_failure(text) is None


@pytest.mark.parametrize("prefix", ["", "gpu-031: "])
def test_what_nvidia_smi_prints_instead_of_gpus_is_read(prefix: str) -> None:
    """With the node's name, where pdsh put it there; `auto` knows the line."""
    line = prefix + MISMATCH
    assert detect([line]) == "nvidia_smi"
    [event] = parse(make_parser("nvidia_smi", Context(node="n")), [line])
    assert (event.kind, event.node, event.message) == ("nvrm_mismatch", prefix[:-2] or "n", MISMATCH)


def test_a_training_program_blames_the_driver() -> None:
    """Its own word, whoever's library said it."""
    [event] = parse(
        make_parser("training", Context()), ["slurmstepd: error: pyxis:     nvidia-container-cli: " + MISMATCH]
    )
    assert (event.kind, event.cause, event.attributes["error"]) == ("training_error", "driver", "nvml_mismatch")
