"""A folder in the form of /sys/class/infiniband, as mlx5 fills it: no adapter is here, so tests write their own.

The names, the decimal values with their line end and the texts (`4: ACTIVE`, `400 Gb/sec (4X NDR)`, `N/A (no PMA)`) are
those of Linux's drivers/infiniband/core/sysfs.c and Documentation/ABI/stable/sysfs-class-infiniband.
"""

from pathlib import Path

COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors"),
    *("port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors"),
    *("port_rcv_constraint_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped"),
    *("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait"),
)
HW_COUNTERS = (
    *("local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "out_of_sequence", "out_of_buffer"),
    *("rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart", "rx_icrc_encapsulated", "np_cnp_sent"),
    *("np_ecn_marked_roce_packets", "rp_cnp_handled", "duplicate_request", "lifespan"),
)


class RdmaTree:
    """The folder, and what is done to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "class" / "infiniband"
        self._devices = folder / "devices"
        self.root.mkdir(parents=True)

    def add(self, device: str, pci: str, ports: int = 1, layer: str = "InfiniBand") -> None:
        """An adapter whose ports are active at 400 Gb/s."""
        home = self._devices / pci
        real = home / "infiniband" / device
        real.mkdir(parents=True)
        (self.root / device).symlink_to(real)
        (real / "device").symlink_to(home)
        (real / "node_guid").write_text(f"b83f:d203:0020:{int(device.rpartition('_')[2]):04x}\n")
        (real / "fw_ver").write_text("28.39.1002\n")
        for port in range(1, ports + 1):
            (real / "ports" / str(port) / "counters").mkdir(parents=True)
            (real / "ports" / str(port) / "hw_counters").mkdir()
            self.set(device, port, state="4: ACTIVE", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)")
            self.set(device, port, link_layer=layer, lid="0x1f", sm_lid="0x1", cap_mask="0xa651e848")
            self.count(device, port, **dict.fromkeys((*COUNTERS, *HW_COUNTERS), 0))

    def path(self, device: str, port: int) -> Path:
        """A port's folder."""
        return self.root / device / "ports" / str(port)

    def set(self, device: str, port: int, **texts: str) -> None:
        """Texts of a port's own files."""
        for name, text in texts.items():
            (self.path(device, port) / name).write_text(f"{text}\n")

    def call(self, device: str, port: int, lid: str, gid: str, netdev: str) -> None:
        """A port's LID, its first GID, and the network interface of it."""
        self.set(device, port, lid=lid)
        for folder, text in (("gids", gid), ("gid_attrs/ndevs", netdev)):
            (self.path(device, port) / folder).mkdir(parents=True)
            (self.path(device, port) / folder / "0").write_text(f"{text}\n")

    def count(self, device: str, port: int, **values: int | str) -> None:
        """Counters of a port."""
        for name, value in values.items():
            folder = "hw_counters" if name in HW_COUNTERS else "counters"
            (self.path(device, port) / folder / name).write_text(f"{value}\n")

    def remove(self, device: str) -> None:
        """The adapter has left the bus."""
        (self.root / device).unlink()

    def bring_back(self, device: str, pci: str) -> None:
        """It is there again."""
        (self.root / device).symlink_to(self._devices / pci / "infiniband" / device)
