"""Who may write where: rules for zenoh, made from the list of members. Names are those in certificates: it takes TLS.

What a node says under its own name passes; what it says under another's is stopped at the first relay or peer. The
rules are read when a session opens: a new member needs a new session of every relay (two relays restart in turn).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

ANY_RUN: Final = "*"

_HEAR: Final = ("declare_subscriber", "query", "liveliness_query", "declare_liveliness_subscriber")
_SPEAK: Final = ("put", "delete", "declare_queryable", "reply", "liveliness_token")
_BOTH: Final = (*_HEAR, *_SPEAK)


def own_keys(run: str, name: str) -> list[str]:
    """The keys under which a node speaks: its heartbeats and card, its rounds, and the answers to what it is asked.

    >>> own_keys("ab12", "ann")
    ['motet/ab12/beat/ann', 'motet/ab12/card/ann', 'motet/ab12/roll/ann/*', 'motet/ab12/ask/*/ann/**']
    """
    stem = f"motet/{run}"
    return [f"{stem}/beat/{name}", f"{stem}/card/{name}", f"{stem}/roll/{name}/*", f"{stem}/ask/*/{name}/**"]


def access_rules(members: Iterable[str], *, run: str = ANY_RUN, relays: Iterable[str] = ()) -> dict[str, Any]:
    """The section `access_control` of a session's configuration.

    Args:
        members: names of the nodes, as in their certificates.
        run: id of the run in hexadecimal; by default all runs whose nodes have these certificates.
        relays: names of relays; what comes from them has been checked there, whoever said it.

    Raises:
        ValueError: no member, or a name that is a member's and a relay's.
    """
    nodes, hubs = list(dict.fromkeys(members)), list(dict.fromkeys(relays))
    if not nodes:
        raise ValueError("access rules need at least one member")
    if both := sorted(set(nodes) & set(hubs)):
        raise ValueError(f"{', '.join(both)}: a name is a node's or a relay's, not both")
    everything = [f"motet/{run}/**"]
    rules = [
        _rule("hear", everything, _HEAR, "ingress"),
        _rule("tell", everything, _BOTH, "egress"),
        *(_rule(f"speak-{name}", own_keys(run, name), _SPEAK, "ingress") for name in nodes),
    ]
    subjects = [_subject("members", nodes), *(_subject(f"node-{name}", [name]) for name in nodes)]
    policies = [
        {"rules": ["hear", "tell"], "subjects": ["members"]},
        *({"rules": [f"speak-{name}"], "subjects": [f"node-{name}"]} for name in nodes),
    ]
    if hubs:
        rules.append(_rule("pass-on", everything, _BOTH, "ingress"))
        subjects.append(_subject("relays", hubs))
        policies.append({"rules": ["pass-on", "tell"], "subjects": ["relays"]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def _rule(name: str, keys: Sequence[str], messages: Sequence[str], flow: str) -> dict[str, Any]:
    return {
        "id": name,
        "permission": "allow",
        "flows": [flow],
        "key_exprs": list(keys),
        "messages": list(messages),
    }


def _subject(name: str, certificate_names: Sequence[str]) -> dict[str, Any]:
    return {"id": name, "cert_common_names": list(certificate_names)}
