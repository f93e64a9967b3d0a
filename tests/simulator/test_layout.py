"""The machine room."""

import numpy as np
import pytest

from simulator.site import (
    GPUS,
    PCI,
    Parameters,
    SimulationSettings,
    gpu_uuid,
    hca_guid,
    hca_lid,
    lay_out,
    leaf_guid,
    leaf_lid,
    leaf_of,
    leaf_port,
    rack_of,
    spine_guid,
    spine_lid,
)
from store.records.event import canonical_pci


@pytest.mark.parametrize(("nodes", "first", "last"), [(8, "gpu-001", "gpu-008"), (1200, "gpu-0001", "gpu-1200")])
def test_names_are_as_wide_as_the_largest(nodes: int, first: str, last: str) -> None:
    """At least three digits."""
    layout = lay_out(SimulationSettings(nodes=nodes), Parameters(), np.random.default_rng(0))
    assert (layout.names[0], layout.names[-1]) == (first, last)
    assert len({len(name) for name in layout.names}) == 1


def test_every_guid_and_lid_is_its_own() -> None:
    """Up to the largest cluster that can be simulated."""
    layout = lay_out(SimulationSettings(nodes=10_000), Parameters(), np.random.default_rng(0))
    guids = [hca_guid(node) for node in range(layout.nodes)] + [hca_guid(node) + 1 for node in range(layout.nodes)]
    guids += [leaf_guid(leaf) for leaf in range(layout.leaves)] + [spine_guid(spine) for spine in range(layout.spines)]
    assert len(set(guids)) == len(guids)
    lids = [hca_lid(node) for node in range(layout.nodes)] + [leaf_lid(leaf) for leaf in range(layout.leaves)]
    lids += [spine_lid(spine) for spine in range(layout.spines)]
    assert len(set(lids)) == len(lids)
    assert max(lids) < 0xC000


def test_a_port_of_a_leaf_has_one_host() -> None:
    """No two cables in one socket."""
    places = [(leaf_of(node), leaf_port(node)) for node in range(400)]
    assert len(set(places)) == 400
    assert rack_of(4) == rack_of(0) + 1


def test_gpus_have_their_own_uuids() -> None:
    """Over nodes and GPUs."""
    assert len({gpu_uuid(node, gpu) for node in range(500) for gpu in range(GPUS)}) == 500 * GPUS


def test_pci_addresses_are_canonical_but_for_the_function() -> None:
    """The driver prints none; our parsers add it."""
    assert len(set(PCI)) == GPUS
    assert all(f"{address}.0" == address.lower() + ".0" for address in PCI)
    assert all(canonical_pci(address) == f"{address}.0" for address in PCI)


def test_a_few_nodes_join_later() -> None:
    """In the first part of the archive, at midnight; the others were there before."""
    layout = lay_out(SimulationSettings(nodes=400, days=100), Parameters(), np.random.default_rng(0))
    late = [since for since in layout.since_ms if since]
    assert len(late) == 24
    assert all(since % 86_400_000 == 0 and since <= 40 * 86_400_000 for since in late)
    assert all((age == 0) == bool(since) for age, since in zip(layout.age_days, layout.since_ms, strict=True))
