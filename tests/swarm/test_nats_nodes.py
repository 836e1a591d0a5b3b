"""Two real nodes at a server of NATS that asks for certificates, all of them from `motet keys`."""

from __future__ import annotations

from pathlib import Path

from nats_server import NatsServer, nats_marks, permissions
from node_process import Ground

pytestmark = nats_marks()

NAMES = ("ann", "bob")


def test_nodes_train_together_over_tls_with_permissions(tmp_path: Path) -> None:
    ground = Ground(tmp_path, NAMES)
    assert ground.run("keys", "ca", "run.toml")[0] == 0
    for name, host in (("hub", ["--host", "127.0.0.1"]), ("ann", []), ("bob", [])):
        code, _, said = ground.run("keys", "issue", "run.toml", "--name", name, *host)
        assert code == 0, said
    keys = ground.home / "keys" / ground.run_name / "tls"
    users = ", ".join(f'{{ user: "CN={name}", permissions: {permissions(name)} }}' for name in NAMES)
    config = f"""
        tls {{
          cert_file: "{keys / "hub" / "node.pem"}"
          key_file: "{keys / "hub" / "node.key"}"
          ca_file: "{keys / "hub" / "ca.pem"}"
          verify_and_map: true
        }}
        authorization {{ users: [{users}] }}
    """
    with NatsServer(tmp_path / "server", config=config, scheme="tls") as server:

        def settings(name: str) -> list[str]:
            values = ("transport=nats", f'connect=["{server.address}"]', f"tls={keys / name}")
            return [f"--set=swarm.{value}" for value in values]

        with ground.node("ann", *settings("ann")) as ann, ground.node("bob", *settings("bob")) as bob:
            ann.wait_accepted("bob")
            bob.wait_accepted("ann")
            for node in (ann, bob):
                node.check_calm()
                status = node.wait(lambda status: status.neighbours == 1, "connected")
                assert (status.dropped_by, status.link_fault) == ({}, None)
            assert ann.stop() == bob.stop() == 143
