"""Arrays come back bit by bit, the safetensors library agrees on the form, and no header is taken at its word."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from learnproof.runs.tensorfile import CODES, differences, layout_of, read_arrays, read_header, serialize
from learnproof.runs.untrusted import Refused


def to_bytes(arrays) -> bytes:
    return b"".join(bytes(buffer) for buffer in serialize(arrays))


def from_bytes(data: bytes):
    file, digest = io.BytesIO(data), hashlib.sha256()
    arrays = read_arrays(file, read_header(file, len(data)), digest)
    assert digest.hexdigest() == hashlib.sha256(data).hexdigest()
    assert file.read() == b""
    return arrays


def one_entry(text: str, body: bytes = b"") -> bytes:
    header = text.encode()
    return len(header).to_bytes(8, "little") + header + body


some_arrays = st.dictionaries(
    st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), min_size=1, max_size=20),
    st.sampled_from(list(CODES.values())).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), elements={"allow_subnormal": False}
        )
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(some_arrays)
def test_arrays_come_back_bit_by_bit_and_the_library_reads_the_same(arrays):
    data = to_bytes(arrays)
    for read in (from_bytes(data), safetensors.numpy.load(data)):
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (read[name].shape, read[name].dtype) == (array.shape, array.dtype)
            assert read[name].tobytes() == array.tobytes()


@settings(max_examples=30, deadline=None)
@given(some_arrays)
def test_what_the_library_writes_is_read(arrays):
    read = from_bytes(safetensors.numpy.save(arrays))
    assert {name: array.tobytes() for name, array in read.items()} == {n: a.tobytes() for n, a in arrays.items()}


def test_the_order_of_the_mapping_does_not_change_the_bytes():
    a, b = np.arange(3.0), np.arange(4, dtype="u1")
    assert to_bytes({"a": a, "b": b}) == to_bytes({"b": b, "a": a})


def test_strided_and_big_endian_arrays_are_written_by_value():
    source = np.arange(12, dtype=">f8").reshape(3, 4).T
    read = from_bytes(to_bytes({"x": source}))["x"]
    np.testing.assert_array_equal(read, source)
    assert layout_of({"x": source}) == layout_of({"x": read})


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([object()]), np.zeros(2, "c16")])
def test_what_has_no_form_is_not_written(array):
    with pytest.raises(TypeError, match="dtype"):
        serialize({"x": array})


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b", "é", "a\nb", "x" * 257])
def test_a_name_that_could_not_be_read_back_is_not_written(name):
    with pytest.raises(ValueError, match="cannot name an array"):
        serialize({name: np.zeros(1)})


GOOD = '{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'


def test_the_plain_header_that_the_others_are_made_from_is_accepted():
    assert from_bytes(one_entry(GOOD + "   ", b"ab"))["x"].tolist() == [97, 98]


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (GOOD, b"a"),
        (GOOD, b"abc"),
        (GOOD[:-1], b"ab"),
        (GOOD + "}", b"ab"),
        (GOOD + "\x00", b"ab"),
        (GOOD.replace(":", ": "), b"ab"),
        (GOOD.replace("U8", "U9"), b"ab"),
        (GOOD.replace("U8", "BF16"), b"ab"),
        (GOOD.replace("[2]", "[02]"), b"ab"),
        (GOOD.replace("[2]", "[-2]"), b"ab"),
        (GOOD.replace("[2]", "[2.0]"), b"ab"),
        (GOOD.replace("[2]", "[1]"), b"ab"),
        (GOOD.replace("[2]", "[2,[2]]"), b"ab"),
        (GOOD.replace("[0,2]", "[1,3]"), b"abc"),
        (GOOD.replace("[0,2]", "[0,3]"), b"abc"),
        (GOOD.replace("[0,2]", "[2,0]"), b"ab"),
        (GOOD.replace("[2]", "[0,999999999999999999]").replace("[0,2]", "[0,0]"), b""),
        (GOOD[:-1] + "," + GOOD[1:].replace("[0,2]", "[2,4]"), b"abcd"),
        (GOOD[:-1] + "," + GOOD[1:].replace('"x"', '"y"'), b"ab"),
        (GOOD[:-1] + ',"__metadata__":{"a":"b"}}', b"ab"),
        ("[" * 1000, b""),
        ("", b""),
        ('{"x":' * 500, b""),
    ],
)
def test_every_other_header_is_refused(header, body):
    with pytest.raises(Refused):
        from_bytes(one_entry(header, body))


def test_a_truth_value_that_is_neither_is_refused():
    data = to_bytes({"x": np.array([True, False])})
    with pytest.raises(Refused, match="truth value"):
        from_bytes(data[:-1] + b"\x02")


def test_differences_are_named():
    found = layout_of({"a": np.zeros((2, 3), "f4"), "b": np.zeros(1), "same": np.zeros(1)})
    expected = layout_of({"a": np.zeros((2, 4), "f4"), "c": np.zeros(1), "same": np.zeros(1)})
    assert differences(found, expected) == [
        "a is float32 [2, 3], wanted float32 [2, 4]",
        "b is not wanted here",
        "c is missing",
    ]
    assert differences(found, found) == []
    assert differences(found, {**found, "b": ((1,), np.dtype("f4"))}) == ["b is float64 [1], wanted float32 [1]"]
