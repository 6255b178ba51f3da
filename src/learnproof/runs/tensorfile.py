"""Named arrays as one safetensors file, written and read in one strict form.

    draft.put("weights.safetensors", serialize(arrays))     # no copy of the arrays is made
    header = read_header(file, size)                        # names, shapes and dtypes; nothing large allocated
    arrays = read_arrays(file, header, digest)              # each byte read once, hashed, into its final place

The form is that of the safetensors library, which reads these files too: eight bytes with the length of a JSON header,
the header, the arrays. It is narrower in what it accepts: compact JSON with one flat entry per array, arrays in the
header's order without a gap, no metadata. A header is therefore read entry by entry with one pattern instead of a JSON
parser: nesting, duplicate names and endless numbers are not in the language, and memory stays small whatever it says.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np

from .untrusted import Refused

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Layout = Mapping[str, tuple[Shape, np.dtype[Any]]]
"""What arrays to expect: name -> (shape, dtype)."""

MAX_HEADER_BYTES = 2_000_000
MAX_ELEMENTS = 2**48
CODES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
CODE_OF = {dtype: code for code, dtype in CODES.items()}
NAME = re.compile(r"[ !#-\[\]-~]{1,256}")
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_ENTRY = re.compile(
    rf'"(?P<name>{NAME.pattern})":'
    r'\{"dtype":"(?P<code>[A-Z0-9]{1,4})",'
    rf'"shape":\[(?P<shape>(?:{_NUMBER}(?:,{_NUMBER}){{0,31}})?)\],'
    rf'"data_offsets":\[(?P<begin>{_NUMBER}),(?P<end>{_NUMBER})\]\}}'.encode()
)


class Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...


@dataclass(frozen=True)
class Header:
    """The first bytes of a file, and the arrays that they promise, in the order of the file."""

    raw: bytes
    layout: dict[str, tuple[Shape, np.dtype[Any]]]


def layout_of(arrays: Mapping[str, Array]) -> dict[str, tuple[Shape, np.dtype[Any]]]:
    return {name: (array.shape, array.dtype.newbyteorder("<")) for name, array in arrays.items()}


def serialize(arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """The file's bytes as buffers: the header, then each array where it lies. Equal arrays give equal bytes."""
    ordered = {name: _little_endian(name, array) for name, array in arrays.items()}
    ordered = dict(sorted(ordered.items(), key=lambda item: (-item[1].itemsize, item[0])))
    entries: dict[str, dict[str, Any]] = {}
    position = 0
    for name, array in ordered.items():
        entries[name] = {
            "dtype": CODE_OF[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(f"{len(arrays)} arrays need a header of {len(header)} bytes; {MAX_HEADER_BYTES} is the limit.")
    filled = [array for array in ordered.values() if array.nbytes]
    return [len(header).to_bytes(8, "little") + header, *(_bytes_of(a) for a in filled)]


def read_header(file: BinaryIO, size: int) -> Header:
    """Names, shapes and dtypes, checked against each other and against the size of the file."""
    length_bytes = file.read(8)
    length = int.from_bytes(length_bytes, "little")
    if len(length_bytes) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise Refused(
            f"is not a safetensors file: its first bytes give a header of {length:,} bytes, in a file of {size:,} "
            f"and with a limit of {MAX_HEADER_BYTES:,}"
        )
    text = file.read(length)
    if len(text) < length:
        raise Refused("ends inside its header")
    layout, end = _parse_entries(text)
    if 8 + length + end != size:
        raise Refused(f"has {size:,} bytes, but its header accounts for {8 + length + end:,}")
    return Header(length_bytes + text, layout)


def read_arrays(file: BinaryIO, header: Header, digest: Hash) -> dict[str, Array]:
    """The arrays behind the header. Every byte of the file goes through `digest`, which the caller then compares."""
    digest.update(header.raw)
    arrays: dict[str, Array] = {}
    for name, (shape, dtype) in header.layout.items():
        array = np.empty(shape, dtype)
        if array.nbytes:
            view = _bytes_of(array)
            _fill(file, view)
            digest.update(view)
        if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise Refused(f"holds a truth value that is neither 0 nor 1, in {name!r}")
        arrays[name] = array
    return arrays


def differences(found: Layout, expected: Layout) -> list[str]:
    """Where two layouts differ, in words, in the order of the names."""
    said = []
    for name in sorted(found.keys() | expected.keys()):
        here, there = expected.get(name), found.get(name)
        if there is None:
            said.append(f"{name} is missing")
        elif here is None:
            said.append(f"{name} is not wanted here")
        elif tuple(here[0]) != there[0] or np.dtype(here[1]).newbyteorder("<") != there[1]:
            said.append(f"{name} is {_spoken(*there)}, wanted {_spoken(*here)}")
    return said


def _parse_entries(text: bytes) -> tuple[dict[str, tuple[Shape, np.dtype[Any]]], int]:
    layout: dict[str, tuple[Shape, np.dtype[Any]]] = {}
    body = text.rstrip(b" ")
    if body == b"{}":
        return layout, 0
    at, end = 1, 0
    if not body.startswith(b"{"):
        raise Refused("is not a safetensors file: its header does not begin with a brace")
    while True:
        entry = _ENTRY.match(body, at)
        if entry is None:
            raise Refused(f"has a header that is not of the known form, from byte {8 + at} on")
        name, code = entry["name"].decode(), entry["code"].decode()
        shape = tuple(int(number) for number in entry["shape"].split(b",") if number)
        begin, stop = int(entry["begin"]), int(entry["end"])
        if name in layout:
            raise Refused(f"names {name!r} twice")
        if code not in CODES:
            raise Refused(f"holds {name!r} as {code}, which is not a known kind of number")
        if begin != end or stop - begin != math.prod(shape) * CODES[code].itemsize or _too_large(shape):
            raise Refused(f"puts {name!r} of shape {shape} at bytes {begin} to {stop}, which cannot be")
        layout[name] = (shape, CODES[code])
        at, end = entry.end(), stop
        if at == len(body) - 1 and body.endswith(b"}"):
            return layout, end
        if body[at : at + 1] != b",":
            raise Refused(f"has a header that is not of the known form, from byte {8 + at} on")
        at += 1


def _too_large(shape: Shape) -> bool:
    """Also refuses an empty array with absurd other dimensions, which numpy cannot make."""
    return math.prod(max(1, length) for length in shape) > MAX_ELEMENTS


def _bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array, not a copy."""
    return array.reshape(-1).view(np.uint8).data


def _fill(file: BinaryIO, view: memoryview) -> None:
    while view.nbytes:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise Refused("became shorter while it was read")
        view = view[count:]


def _little_endian(name: str, array: Array) -> Array:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name an array: 1 to 256 printable ASCII characters, no quote or backslash.")
    dtype = array.dtype.newbyteorder("<")
    if dtype not in CODE_OF:
        raise TypeError(f"{name!r} is of dtype {array.dtype}; a checkpoint holds {', '.join(map(str, CODE_OF))}.")
    return np.asarray(array, dtype=dtype, order="C")


def _spoken(shape: Shape, dtype: np.dtype[Any]) -> str:
    return f"{np.dtype(dtype).name} {list(shape)}"
