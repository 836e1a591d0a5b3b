"""What travels: groups of rollouts, their bytes on the wire, and the append-only archive of them.

Knows neither torch nor tasks nor peers' trustworthiness: bytes in, a group or one clear error out.
"""

from motet.records.archive import ARCHIVE_LIMITS, Archive, read_archive
from motet.records.packing import LOG_PROB_ERROR_NATS
from motet.records.rollout import FinishReason, Group, Rollout, SamplerInfo
from motet.records.stored import StoredGroups
from motet.records.wire import WIRE_VERSION, LogProbs, WireLimits, decode_group, encode_group

__all__ = [
    "ARCHIVE_LIMITS",
    "LOG_PROB_ERROR_NATS",
    "WIRE_VERSION",
    "Archive",
    "FinishReason",
    "Group",
    "LogProbs",
    "Rollout",
    "SamplerInfo",
    "StoredGroups",
    "WireLimits",
    "decode_group",
    "encode_group",
    "read_archive",
]
