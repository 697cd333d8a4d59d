"""Messages with something wrong: protobuf by its structure, text by its words, anything by its bytes.

Everything follows from the seed of the generator that is handed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

VARINT, FIXED64, BYTES, GROUP, END, FIXED32 = range(6)
WORDS = (0, 1, 2, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
SPECKS = (b"", b"\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(7) + b"\x80", bytes(31), bytes(32), bytes(33))
MOST_BYTES = 64 * 1024  # of a mutated message: a few of them are long, none is all that a run does


class Field(NamedTuple):
    """One field as it lies on the wire; `value` is a number, or bytes where the type has a length."""

    number: int
    kind: int
    value: Any


def varint(value: int, padding: int = 0) -> bytes:
    """`value` in base 128, low digits first; `padding` needless digits make it overlong."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value | (128 if padding else 0))
    return bytes(out) + b"\x80" * (padding - 1) + b"\x00" * (padding > 0)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint has at most ten bytes")


def split(data: bytes) -> list[Field] | None:
    """The fields of a message; None if `data` is none."""
    fields, at = [], 0
    try:
        while at < len(data):
            tag, at = _read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == VARINT:
                value, at = _read_varint(data, at)
                fields.append(Field(number, kind, value))
                continue
            if kind == BYTES:
                length, at = _read_varint(data, at)
            elif kind in (FIXED64, FIXED32):
                length = 8 if kind == FIXED64 else 4
            else:
                return None
            if number == 0 or at + length > len(data):
                return None
            fields.append(Field(number, kind, data[at : at + length]))
            at += length
    except (IndexError, ValueError):
        return None
    return fields


def join(fields: Sequence[Field]) -> bytes:
    """The inverse of `split`."""
    return b"".join(_field(*field) for field in fields)


def _field(number: int, kind: int, value: Any) -> bytes:
    tag = varint(number << 3 | kind)
    if kind == VARINT:
        return tag + varint(value)
    return tag + (varint(len(value)) if kind == BYTES else b"") + bytes(value)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _lose(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 8, 32))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((*SPECKS, rng.randbytes(rng.choice((1, 2, 8, 40)))))


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.choice((1, 8, 64))] * rng.choice((1, 2, 50))


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = 8 * rng.randrange(len(data) // 8 + 1)
    data[at : at + 8] = rng.choice(WORDS).to_bytes(8, "little")


BYTE_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _set, _cut, _lose, _insert, _repeat, _overwrite,
)  # fmt: skip


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """`data` with one to three changes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(BYTE_CHANGES)(out, rng)
    return bytes(out[:MOST_BYTES])


def mutate_message(data: bytes, rng: random.Random) -> bytes:
    """A protobuf message with one to three changes, most of them by its structure."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _once(data, rng)
    return data[:MOST_BYTES]


def _once(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.15:
        return mutate_bytes(data, rng)
    fields = split(data)
    if not fields:
        return data + _stranger(rng)
    at = rng.randrange(len(fields))
    chance = rng.random()
    if chance < 0.6:
        fields[at] = _other_value(fields[at], rng)
        return join(fields)
    if chance < 0.95:
        return rng.choice(SHAPES)(fields, at, rng)
    return rng.choice((_overlong, _wrong_length, _deep))(fields, at, rng)


def _other_value(field: Field, rng: random.Random) -> Field:
    if field.kind == VARINT:
        step = rng.choice((field.value + 1, max(0, field.value - 1), rng.getrandbits(64)))
        return field._replace(value=rng.choice((*WORDS, step)) % 2**64)
    inner = split(field.value) if field.kind == BYTES else None
    if inner and rng.random() < 0.7:
        return field._replace(value=_once(field.value, rng))
    if rng.random() < 0.1:
        return field._replace(value=rng.choice(SPECKS))
    return field._replace(value=mutate_bytes(field.value, rng))


def _drop(fields: list[Field], at: int, rng: random.Random) -> bytes:
    return join(fields[:at] + fields[at + 1 :])


def _double(fields: list[Field], at: int, rng: random.Random) -> bytes:
    return join([*fields, _other_value(fields[at], rng) if rng.random() < 0.5 else fields[at]])


def _many(fields: list[Field], at: int, rng: random.Random) -> bytes:
    one = _field(*fields[at])
    return join(fields) + one * min(rng.choice((10, 100, 1000, 5000)), MOST_BYTES // len(one))


def _swap(fields: list[Field], at: int, rng: random.Random) -> bytes:
    other = rng.randrange(len(fields))
    fields[at], fields[other] = fields[other], fields[at]
    return join(fields)


def _renumber(fields: list[Field], at: int, rng: random.Random) -> bytes:
    fields[at] = fields[at]._replace(number=rng.choice((1, 2, 3, 5, 9, 12, 16, 27, 99, 19000, 2**29 - 1)))
    return join(fields)


def _retype(fields: list[Field], at: int, rng: random.Random) -> bytes:
    """The value's bytes under another wire type: what follows is read from the wrong place."""
    number, kind, value = fields[at]
    raw = varint(value) if kind == VARINT else value
    fields_before, fields_after = join(fields[:at]), join(fields[at + 1 :])
    return fields_before + varint(number << 3 | rng.randrange(8)) + raw + fields_after


def _strange(fields: list[Field], at: int, rng: random.Random) -> bytes:
    return join(fields[:at]) + _stranger(rng) + join(fields[at:])


SHAPES: tuple[Callable[[list[Field], int, random.Random], bytes], ...] = (
    _drop, _double, _double, _many, _swap, _renumber, _retype, _strange,
)  # fmt: skip


def _stranger(rng: random.Random) -> bytes:
    number = rng.choice((1, 2, 4, 7, 30, 1000, 2**29 - 1))
    kind = rng.choice((VARINT, FIXED64, BYTES, FIXED32))
    values = {VARINT: rng.choice(WORDS), FIXED64: rng.randbytes(8), FIXED32: rng.randbytes(4)}
    return _field(number, kind, values.get(kind, rng.choice(SPECKS)))


def _overlong(fields: list[Field], at: int, rng: random.Random) -> bytes:
    number, kind, value = fields[at]
    padding = rng.randrange(1, 11)
    raw = varint(value, padding) if kind == VARINT else varint(len(value), padding) + value
    return join(fields[:at]) + varint(number << 3 | kind, rng.randrange(4)) + raw + join(fields[at + 1 :])


def _wrong_length(fields: list[Field], at: int, rng: random.Random) -> bytes:
    number, _, value = fields[at]
    raw = value if isinstance(value, bytes) else varint(value)
    claimed = rng.choice((len(raw) + 1, max(0, len(raw) - 1), 2**31 - 1, 2**32 + 5, 2**63))
    return join(fields[:at]) + varint(number << 3 | BYTES) + varint(claimed) + raw + join(fields[at + 1 :])


def _deep(fields: list[Field], at: int, rng: random.Random) -> bytes:
    """The field inside itself, again and again; or groups that open and never end."""
    if rng.random() < 0.3:
        return join(fields) + varint(fields[at].number << 3 | GROUP) * rng.choice((1, 90, 200, 2000))
    data = fields[at].value if isinstance(fields[at].value, bytes) else b""
    for _ in range(rng.choice((1, 5, 98, 150))):
        data = _field(fields[at].number, BYTES, data)
    return join(fields[:at]) + data + join(fields[at + 1 :])


NUMBERS = (
    "0", "-0.0", "1", "-1", "1e309", "-1e309", "nan", "inf", "1e-400", "9" * 400, "0x10", "1_000", "true",
    "9007199254740993", "18446744073709551616", '""', "[]", "{}", "[[]]", "null", "1979-05-27", "'\u0000'",
)  # fmt: skip
MARKS = (*"\"'[]{},=\n\r#.\\\0\ufeff\u2028\ud7ff", '"""')
STRIPS = (5, 80, 3000)  # how often a mark is repeated: nesting has a limit everywhere


def _number(text: str, rng: random.Random) -> str:
    at = [index for index, letter in enumerate(text) if letter.isdigit()]
    if not at:
        return text
    start = end = rng.choice(at)
    while end < len(text) and (text[end].isalnum() or text[end] in "+-."):
        end += 1
    return text[:start] + rng.choice(NUMBERS) + text[end:]


def _mark(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(MARKS) * rng.choice((1, 1, 1, 2, *STRIPS)) + text[at:]


def _line(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at:at] = [lines[at]] * rng.choice(STRIPS)
    return "\n".join(lines)


def _words(text: str, rng: random.Random) -> str:
    cut = sorted(rng.randrange(len(text) + 1) for _ in range(4))
    a, b, c, d = cut
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def _letters(text: str, rng: random.Random) -> str:
    return mutate_bytes(text.encode(), rng).decode(errors="replace")


TEXT_CHANGES = (_number, _number, _mark, _line, _words, _letters)


def mutate_text(text: str, rng: random.Random) -> str:
    """`text` with one to three changes: its numbers, marks, lines, letters."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(TEXT_CHANGES)(text, rng)
    return text[:MOST_BYTES]
