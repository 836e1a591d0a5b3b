"""Every code by which something is refused or rejected has words for people."""

from __future__ import annotations

from typing import get_args

from motet.admission.verdict import Reason
from motet.journal.reasons import REFUSED, REJECTED, refused_for, rejected_for
from motet.swarm.network.status import RefusedFor


def codes(kind):
    """All codes of a Literal, or of several in a union."""
    return {code for one in get_args(kind) for code in ([one] if isinstance(one, str) else codes(one))}


def test_every_reason_has_words():
    assert set(REFUSED) == codes(RefusedFor)
    assert set(REJECTED) == codes(Reason)
    assert refused_for("wrong_key", "bob") == "signed by another key than bob's"
    assert not [code for code in REFUSED if code in refused_for(code, "bob").split()[:1] or "{" in refused_for(code)]
    assert (refused_for("of a newer version"), rejected_for("padded")[:7]) == ("of a newer version", "correct")
