"""The site of docs/install.md: a machine on which nothing of ours is yet, beside a real Slurm, PostgreSQL and nginx.

with slurm_site(folder, server, cluster) as site:
    site.walk()
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from installed_site import InstalledSite
from real.foreshock import free_port
from real.nats import Nats
from real.patience import patience
from real.postgres import Postgres
from real.programs import need, wait_for
from real.slurm import Slurm

FAULT = "7. The first fault"


class SlurmSite(InstalledSite):
    """Real Prometheus, Alertmanager and NATS besides; `gpu001` has the first fault, `gpu002` one behind NATS."""

    def __init__(self, folder: Path, server: Postgres, cluster: Slurm, *, installs: bool) -> None:
        need("nginx", "nginx-light")
        super().__init__(folder, server, "install.md", installs=installs)
        self.cluster, self.nats = cluster, Nats(folder, "-c", str(self.paths["/etc/nats"] / "nats-server.conf"))
        api, self.consumer_port = free_port(), free_port()
        kernel_log = folder / "kern.log"
        kernel_log.write_text("")
        self.here |= {
            "@127.0.0.1/foreshock": f"@/foreshock?host={server.folder}",
            "127.0.0.1:10870": f"127.0.0.1:{api}",
            "127.0.0.1:9093": self.start_alertmanager(),
            "10443": str(free_port()),
            "10872": str(self.consumer_port),
            "foreshock.example.org": "localhost",
            "foreshock.example.org:10870": "foreshock.example.org:10870",  # the page changes it
            "foreshock.example.org:4222": f"localhost:{self.nats.port}",
            "/etc/nats-server.conf": str(self.paths["/etc/nats"] / "nats-server.conf"),
            'jetstream { store_dir: "/var/lib/nats" }': "",  # its starter says where
            "/var/lib/nats": str(folder / "jetstream"),
            "/etc/nats-server.key": str(self.paths["/etc/nats"] / "nats-server.key"),
            "-o nats -g nats": "",  # not every machine has that user
            "-o root -g nats": "",
            "/etc/slurm/slurm.conf": str(cluster.folder / "slurm.conf"),
            "> /dev/kmsg": f">> {kernel_log}",
            "'<3>NVRM": "'NVRM",
            "scontrol ": f"SLURM_CONF={cluster.folder / 'slurm.conf'} scontrol ",
            "  - scrape:http://127.0.0.1:9400/metrics\n": f"port: 0\nspool: {folder / 'spool'}\n",
            "  - kmsg\n": f"  - file:{kernel_log}:kernel\n",
        }
        self.options = {
            "foreshock-server": ["--port", str(api)],
            "foreshock-dashboard": ["--port", str(free_port())],
            "foreshock-sidecar": ["--node", "gpu001"],
        }

    def before(self, block: str) -> str:
        """With the id of the hint that waits for a person; once the node drains, once a batch came through NATS."""
        if "approve ID" in block:
            return block.replace("ID", self.proposed())
        if "scontrol" in block:
            wait_for("Slurm drains the node", lambda: "DRAIN" in self.cluster.state("gpu001"))
            self.moment("out")
        if "restart foreshock-sidecar" in block:
            self.options["foreshock-sidecar"] = ["--node", "gpu002"]
        if "foreshock_consumed" in block:
            wait_for("a batch came through NATS", lambda: self.consumed() > 0)
        return block

    def after(self, block: str) -> None:
        """Wait as a person does, who reads on meanwhile."""
        self.obey()
        if "foreshock-sidecar" in block:
            token, log = self.folder / "spool" / "token", self.folder / "foreshock-sidecar.log"
            wait_for(
                "it has a token of its own", lambda: token.exists() or bool(self.units["foreshock-sidecar"].poll())
            )
            assert self.units["foreshock-sidecar"].poll() is None, log.read_text()
        if "foreshock-consumer" in block:
            streams = self.folder / "jetstream"
            wait_for("the consumer has made its stream", lambda: any(streams.rglob("streams/foreshock")))
        if "Xid" in block:
            self.moment("fault")
            wait_for("there is a verdict", lambda: self.has_verdict("gpu001"))
            self.moment("shown")

    def has_verdict(self, node: str) -> bool:
        """As the page looks for it."""
        return node in self.run(self.blocks(FAULT)[1])

    def fault_behind_nats(self) -> None:
        """The page's line in the kernel log of the other node; until there is a verdict."""
        self.run(self.blocks(FAULT)[0])
        wait_for("there is a verdict of what came through NATS", lambda: self.has_verdict("gpu002"))

    def consumed(self) -> float:
        """How many messages the consumer says that it has stored."""
        try:
            with urlopen(f"http://127.0.0.1:{self.consumer_port}/metrics", timeout=patience(10)) as answer:
                page = answer.read().decode()
        except OSError:  # it does not listen yet
            assert self.units["foreshock-consumer"].poll() is None, (self.folder / "foreshock-consumer.log").read_text()
            return 0
        return sum(map(float, re.findall(r'_consumed_messages_total\{result="stored"\} (\S+)', page)))

    def proposed(self) -> str:
        """The id of the hint that waits for a person."""
        found: list[str] = []

        def there() -> bool:
            text = self.run("foreshock hints list --state proposed --json\n")
            found[:] = re.findall(r'"id": "(\w+)"', text)
            return bool(found)

        wait_for("a hint is proposed", there)
        return found[0]


@contextmanager
def slurm_site(folder: Path, server: Postgres, cluster: Slurm, *, installs: bool = False) -> Iterator[SlurmSite]:
    """Its database goes at the end."""
    found = SlurmSite(folder, server, cluster, installs=installs)
    try:
        yield found
    finally:
        found.end()
        found.postgres("dropdb", "--if-exists", "--force", "foreshock")
        found.postgres("dropuser", "--if-exists", "foreshock")
