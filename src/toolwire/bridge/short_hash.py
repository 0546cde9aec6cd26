"""Short hashes that are the same in every process: digits and lower-case letters."""

from __future__ import annotations

__all__ = ["short_hash"]

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def short_hash(text: str, length: int) -> str:
    """Hash `text` to `length` characters (at most 12)."""
    from hashlib import blake2b  # costs two milliseconds, and most requests need no hash

    number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    characters = []
    for _ in range(length):
        number, digit = divmod(number, 36)
        characters.append(_ALPHABET[digit])
    return "".join(characters)
