"""Ed25519 keys: what a node signs with and by which others know it. Knows neither messages nor who is let in.

A key file is PKCS#8 in PEM, readable by its owner alone. Whoever has it can speak as the node, so it is never copied
into a run directory, printed or sent.
"""

from __future__ import annotations

import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

from motet.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC_BYTES: Final = 32
SECRET_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_PREFIX: Final = "ed25519:"
_MAX_FILE_BYTES: Final = 16_384
_EXPECTED: Final = "expected an unencrypted Ed25519 key as PKCS#8 in PEM, such as `openssl genpkey -algorithm ed25519`"
_MAX_CACHED_KEYS: Final = 2048
_SIGN_BIT: Final = 0x7F
_OF_SMALL_ORDER: Final = frozenset(  # points under which anybody can sign, with the sign bit cleared
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


class NodeKey:
    """A private key. Made by `generate`, `from_secret` or `load_or_create`; its `repr` shows the public half only."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key.

        Raises:
            EnvironmentFault: the package cryptography is missing (E-KEY-02).
        """
        return cls.from_secret(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_secret(cls, secret: bytes) -> Self:
        """The key of 32 secret bytes.

        Raises:
            ValueError: not 32 bytes.
            EnvironmentFault: the package cryptography is missing (E-KEY-02).
        """
        require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.from_private_bytes(secret))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The key in a file.

        Raises:
            UsageError: missing, unreadable, damaged, of another kind, or readable by others (E-KEY-01).
            EnvironmentFault: the package cryptography is missing (E-KEY-02).
        """
        require_cryptography()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        content = _read(path)
        try:
            private = load_pem_private_key(content, password=None)
        except TypeError:
            _refuse(path, f"is encrypted with a passphrase; {_EXPECTED}")
        except (ValueError, UnsupportedAlgorithm):
            _refuse(path, f"is damaged or no private key; {_EXPECTED}. Restore it, or delete it to have a new one made")
        if not isinstance(private, Ed25519PrivateKey):
            _refuse(path, f"holds a key of another kind; {_EXPECTED}")
        return cls(private)

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """The key in a file; without the file a new key, written there with mode 0600, its folder made.

        Processes that do this at the same moment end with the same key.

        Raises:
            UsageError: the file is no key, or can be neither read nor written (E-KEY-01).
            EnvironmentFault: the package cryptography is missing (E-KEY-02).
        """
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_secret(path, cls.generate().to_pem(), replace=False)
        except FileExistsError:
            pass  # another process was faster, or the folder is a file, which reading tells
        except OSError as error:
            _refuse(path, f"cannot be written: {error.strerror or error}; choose another MOTET_HOME")
        return cls.load(path)

    @property
    def secret(self) -> bytes:
        """The 32 secret bytes: for an invitation, and nothing else."""
        return self._private.private_bytes_raw()

    def to_pem(self) -> bytes:
        """The content of a key file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature of `data`; always the same one."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        """The public half."""
        return f"NodeKey({fingerprint(self.public)})"


def verify(public: bytes, data: bytes, signature: bytes) -> bool:
    """True if the holder of `public` signed `data`. Never raises; no key and no signature of any length is an error."""
    require_cryptography()
    from cryptography.exceptions import InvalidSignature

    if len(signature) != SIGNATURE_BYTES or len(public) != PUBLIC_BYTES:
        return False
    key = _public_key(public)
    if key is None:
        return False
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def fingerprint(public: bytes) -> str:
    """A public key as it is written in run files.

    >>> fingerprint(bytes(31) + b"\\x05")[:8], len(fingerprint(bytes(32)))
    ('ed25519:', 72)
    """
    return _PREFIX + public.hex()


def parse_fingerprint(text: str) -> bytes:
    """The public key (32 bytes) that `fingerprint` wrote.

    Raises:
        ValueError: the text is none: it must be "ed25519:" and 64 hex digits, small ones.
    """
    digits = text.removeprefix(_PREFIX)
    if text.startswith(_PREFIX) and len(digits) == 2 * PUBLIC_BYTES and not set(digits) - set("0123456789abcdef"):
        return bytes.fromhex(digits)
    raise ValueError('a public key is written "ed25519:" and 64 hex digits (0-9, a-f)')


def short(public: bytes) -> str:
    """The first 8 hex digits of a public key, for people to compare; no proof of anything.

    >>> short(bytes.fromhex("0badcafe") + bytes(28))
    '0badcafe'
    """
    return public[:4].hex()


def write_secret(path: Path, content: bytes, *, replace: bool) -> None:
    """Write a file that only its owner may read (0600): whole or not at all.

    Raises:
        FileExistsError: it is there, and not to be replaced.
        OSError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            partial.replace(path)
        else:
            os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def is_readable_by_others(path: Path) -> bool:
    """True if a file gives rights to anybody but its owner; False where the system knows no such rights."""
    return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


@lru_cache(maxsize=1)
def require_cryptography() -> None:
    """Raise EnvironmentFault (E-KEY-02) if the package cryptography is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise EnvironmentFault(
            "the package cryptography is missing, which signs messages and checks them: pip install 'motet[swarm]'",
            code="E-KEY-02",
        ) from None


@lru_cache(maxsize=_MAX_CACHED_KEYS)
def _public_key(public: bytes) -> Ed25519PublicKey | None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if public[:-1] + bytes([public[-1] & _SIGN_BIT]) in _OF_SMALL_ORDER:
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(public)
    except ValueError:
        return None


def _read(path: Path) -> bytes:
    try:
        if is_readable_by_others(path):
            _refuse(path, f"others than its owner may read or change this secret; say `chmod 600 {path}`")
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror or error}")
    if len(content) > _MAX_FILE_BYTES:
        _refuse(path, f"is too large for a key; {_EXPECTED}")
    return content


def _refuse(path: Path, what: str) -> NoReturn:
    raise UsageError(f"key file {path}: {what}", code="E-KEY-01")
