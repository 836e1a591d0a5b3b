"""Sessions of zenoh: the only module that imports it, and only when a link or a relay is opened."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from motet.errors import EnvironmentFault
from motet.swarm.engines.addresses import Address

if TYPE_CHECKING:
    import zenoh

CLOSING_S: Final = 3.0
_NUM_RECEIVING: Final = 32
_OF_THE_SYSTEM: Final = re.compile(r"([A-Z][A-Za-z' ]+) \(os error [0-9]+\)")


def import_zenoh() -> Any:
    """The package zenoh, with enough threads.

    One that closes the connection of a peer which has vanished without a word is stuck for ten seconds. By default
    there are two to receive with: two such connections, and nothing of anybody's arrives.

    Raises:
        EnvironmentFault: E-LINK-04, it is not installed, or not for this machine.
    """
    os.environ.setdefault("ZENOH_RUNTIME", f"(rx: (worker_threads: {_NUM_RECEIVING}))")  # read at the first session
    try:
        import zenoh
    except ImportError as error:
        raise EnvironmentFault(
            f"swarm.transport = \"zenoh\" needs the package eclipse-zenoh ({error}): pip install 'motet[swarm]'",
            code="E-LINK-04",
        ) from None
    return zenoh


def open_session(config: dict[str, Any]) -> zenoh.Session:
    """A session; raises zenoh's own error if it cannot be opened."""
    engine = import_zenoh()
    session: zenoh.Session = engine.open(engine.Config.from_json5(json.dumps(config)))
    return session


def close_session(session: zenoh.Session) -> None:
    """Close a session. That takes zenoh long if somebody at its other end is frozen: it goes on in the background."""
    engine = import_zenoh()

    def close() -> None:
        with suppress(engine.ZError):
            session.close()  # type: ignore[no-untyped-call]  # zenoh leaves out what returns nothing

    thread = threading.Thread(target=close, name="zenoh-close", daemon=True)
    thread.start()
    thread.join(CLOSING_S)


def links_of(session: zenoh.Session) -> list[zenoh.Link]:
    """The connections of a session, one for each node or relay."""
    return list({str(link.zid): link for link in session.info.links()}.values())


def cannot_listen(listen: Sequence[Address], error: Exception) -> EnvironmentFault:
    """What is said when not all of the addresses can be listened on."""
    told = _OF_THE_SYSTEM.search(str(error))
    why = told[1] if told else re.sub(r"\s+at /\S+", "", str(error))
    return EnvironmentFault(
        f"cannot listen on {', '.join(map(str, listen))}: {why}; choose another address or port, or end what has it",
        code="E-LINK-05",
    )


def sees_relay(session: zenoh.Session) -> bool:
    """Whether it is connected to one."""
    return bool(session.info.routers_zid())
