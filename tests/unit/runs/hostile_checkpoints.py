"""Files that somebody made to harm the reader: each function spoils one good checkpoint folder.

Where it helps the attack, the manifest is forged to match, since anybody can compute a digest.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

from sample_checkpoints import forge, seal

Attack = Callable[[Path], None]
ATTACKS: dict[str, Attack] = {}
WEIGHTS, STATE, MANIFEST = "weights.safetensors", "state.json", "MANIFEST.json"


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


class Payload:
    """What unpickling this would do: leave a file called `executed` beside the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return (os.system, (f"touch '{self.folder.parent / 'executed'}'",))


def weights_are(folder: Path, data: bytes) -> None:
    (folder / WEIGHTS).write_bytes(data)
    forge(folder)


def state_is(folder: Path, data: bytes) -> None:
    (folder / STATE).write_bytes(data)
    forge(folder)


def header_is(folder: Path, header: bytes, body: bytes = b"") -> None:
    weights_are(folder, len(header).to_bytes(8, "little") + header + body)


@attack
def pickle_named_safetensors(folder):
    weights_are(folder, pickle.dumps(Payload(folder)))


@attack
def pickle_named_state(folder):
    state_is(folder, pickle.dumps(Payload(folder)))


@attack
def pickle_beside_the_files(folder):
    (folder / "weights.pkl").write_bytes(pickle.dumps(Payload(folder)))


@attack
def pickle_listed_in_the_manifest(folder):
    (folder / "weights.pkl").write_bytes(pickle.dumps(Payload(folder)))
    forge(folder, lambda body: body["files"].update({"weights.pkl": {"bytes": 1, "sha256": "0" * 64}}))


@attack
def python_file_beside_the_files(folder):
    (folder / "sitecustomize.py").write_text("raise SystemExit")


@attack
def zip_bomb_named_safetensors(folder):
    with zipfile.ZipFile(folder / WEIGHTS, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(100_000_000))
    forge(folder)


@attack
def gzip_bomb_named_state(folder):
    state_is(folder, gzip.compress(bytes(100_000_000), 9))


@attack
def header_longer_than_memory(folder):
    weights_are(folder, (2**63 - 1).to_bytes(8, "little") + b"{}")


@attack
def header_of_two_gigabytes_in_a_sparse_file(folder):
    with open(folder / WEIGHTS, "wb") as file:
        file.write((2 * 10**9).to_bytes(8, "little"))
        file.truncate(3 * 10**9)
    forge(folder)


@attack
def header_of_many_small_objects(folder):
    header_is(folder, b'{"a":[' + b"{}," * 600_000 + b"{}]}")


@attack
def header_of_many_arrays(folder):
    entry = '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header_is(folder, ("{" + ",".join(entry % i for i in range(33_000)) + "}").encode())


@attack
def header_nested_deeply(folder):
    header_is(folder, b"[" * 1_900_000)


@attack
def header_that_names_an_array_twice(folder):
    entry = b'"policy.0.bias":{"dtype":"F32","shape":[8],"data_offsets":[%d,%d]}'
    header_is(folder, b"{" + entry % (0, 32) + b"," + entry % (32, 64) + b"}", bytes(64))


@attack
def arrays_that_overlap(folder):
    one = b'"policy.0.bias":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}'
    two = b'"policy.0.weight":{"dtype":"F32","shape":[8,4],"data_offsets":[0,128]}'
    header_is(folder, b"{" + one + b"," + two + b"}", bytes(128))


@attack
def array_outside_the_file(folder):
    header_is(folder, b'{"a":{"dtype":"F32","shape":[250000000000],"data_offsets":[0,1000000000000]}}')


@attack
def array_before_the_file(folder):
    header_is(folder, b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}}', bytes(8))


@attack
def shape_that_overflows_64_bits(folder):
    header_is(folder, b'{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}')


@attack
def empty_array_of_absurd_shape(folder):
    header_is(folder, b'{"a":{"dtype":"U8","shape":[0,999999999999999999],"data_offsets":[0,0]}}')


@attack
def array_name_that_climbs_out_with_metadata(folder):
    header_is(folder, b'{"__metadata__":{"../../x":"y"},"../a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')


@attack
def weights_are_a_link(folder):
    outside = folder.parent / "outside"
    os.rename(folder / WEIGHTS, outside)
    (folder / WEIGHTS).symlink_to(outside)


@attack
def weights_are_a_pipe(folder):
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)
    forge(folder)


@attack
def weights_are_a_folder(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()
    forge(folder)


@attack
def state_is_an_endless_device(folder):
    (folder / STATE).unlink()
    (folder / STATE).symlink_to("/dev/zero")
    forge(folder)


@attack
def state_is_a_socket(folder):
    (folder / STATE).unlink()
    here = os.getcwd()
    os.chdir(folder)  # the address of a socket may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(STATE)
    os.chdir(here)
    forge(folder)


@attack
def state_nested_deeply(folder):
    state_is(folder, b'{"a":' + b"[" * 900_000)


@attack
def state_nested_deeply_in_objects(folder):
    state_is(folder, b'{"a":' * 150_000 + b"1" + b"}" * 150_000)


@attack
def state_names_a_key_twice(folder):
    state_is(folder, b'{"step":20,"step":21}')


@attack
def state_of_ten_gigabytes(folder):
    with open(folder / STATE, "wb") as file:
        file.truncate(10**10)
    forge(folder)


@attack
def state_with_a_number_of_900_000_digits(folder):
    state_is(folder, b'{"a":' + b"9" * 900_000 + b"}")


@attack
def state_that_is_not_text(folder):
    state_is(folder, b'{"a":"\xff\xfe"}')


@attack
def state_that_is_a_list(folder):
    state_is(folder, b"[]")


@attack
def manifest_is_a_pipe(folder):
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


@attack
def manifest_of_ten_gigabytes(folder):
    with open(folder / MANIFEST, "wb") as file:
        file.truncate(10**10)


@attack
def manifest_nested_deeply(folder):
    (folder / MANIFEST).write_bytes(b'{"a":' + b"[" * 250_000)


@attack
def manifest_that_climbs_out(folder):
    (folder.parent / "outside.json").write_text("{}")
    forge(folder, lambda body: body["files"].update({"../outside.json": {"bytes": 2, "sha256": "0" * 64}}))


@attack
def manifest_with_an_absolute_path(folder):
    forge(folder, lambda body: body["files"].update({"/etc/passwd": {"bytes": 2, "sha256": "0" * 64}}))


@attack
def manifest_that_lists_a_thousand_files(folder):
    def change(body):
        body["files"].update({f"f{i}.json": {"bytes": 0, "sha256": "0" * 64} for i in range(1_000)})

    forge(folder, change)


@attack
def manifest_with_sizes_below_zero(folder):
    forge(folder, lambda body: body["files"][WEIGHTS].update(bytes=-1))


@attack
def manifest_whose_fields_have_other_types(folder):
    forge(folder, lambda body: body.update(files=["weights.safetensors"], step="20"))


@attack
def manifest_without_fields(folder):
    body = json.loads((folder / MANIFEST).read_bytes())
    seal(folder / MANIFEST, {"format": body["format"], "version": body["version"]})


@attack
def folder_is_a_link(folder):
    elsewhere = folder.parent.parent / "elsewhere"
    os.rename(folder, elsewhere)
    folder.symlink_to(elsewhere)


@attack
def folder_is_a_file(folder):
    os.rename(folder, folder.parent.parent / "elsewhere")
    folder.write_text("")
