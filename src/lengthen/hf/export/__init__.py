"""Extended checkpoints for others: folders for transformers, flags for servers, GGUF files."""

from .folder import Exported, export
from .gguf_file import GgufExported, export_gguf
from .plan import Plan, not_vanilla, planned
from .record import read_record, reopened
from .server import ServerFlags
from .servers import server_flags

__all__ = [
    "Exported",
    "GgufExported",
    "Plan",
    "ServerFlags",
    "export",
    "export_gguf",
    "not_vanilla",
    "planned",
    "read_record",
    "reopened",
    "server_flags",
]
