"""Generate the Python code of apache.rocketmq.v2 from the checked-in .proto files.

    pip install 'grpcio-tools>=1.76' && python -m tests.wire.generate_protobuf

The .proto files in `rmqcli/wire/protobuf` are those of the tag v2.1.2 of
https://github.com/apache/rocketmq-apis, unchanged; the proxy of RocketMQ 5.5.0 is built
from the same tag. To move to a newer tag, replace them and run this command.

What protoc writes is changed in three ways:

- the types are registered in a descriptor pool of their own, so that a program may load
  RocketMQ's official Python client, which defines the same names, beside this package;
- the generated check of the protobuf runtime's version is left out, because it refuses
  every runtime two major versions newer, and nothing that it guards is used;
- imports name `rmqcli.wire.protobuf`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "rmqcli" / "wire" / "protobuf"
PACKAGE = "apache/rocketmq/v2"
FILES = ("definition", "service")


def main() -> int:
    """Write the four files; return protoc's exit code if it fails."""
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "protos" / PACKAGE
        source.mkdir(parents=True)
        for name in FILES:
            text = (FOLDER / f"{name}.proto").read_text()
            (source / f"{name}.proto").write_text(text)
        out = Path(work) / "out"
        out.mkdir()
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"-I{work}/protos",
            *(f"--python_out={out}", f"--pyi_out={out}"),
            *(f"{PACKAGE}/{name}.proto" for name in FILES),
        ]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status
        for name in FILES:
            code = (out / PACKAGE / f"{name}_pb2.py").read_text()
            types = (out / PACKAGE / f"{name}_pb2.pyi").read_text()
            (FOLDER / f"{name}_pb2.py").write_text(module(name, code))
            (FOLDER / f"{name}_pb2.pyi").write_text(stub(types))
    return 0


def module(name: str, code: str) -> str:
    """The module that registers a file's types in the package's own pool."""
    serialized = re.search(r"AddSerializedFile\((b'.*')\)", code)
    if serialized is None:
        raise ValueError(f"protoc wrote no descriptor for {name}.proto")
    needed = "from rmqcli.wire.protobuf import definition_pb2 as _definition_pb2\n"
    made = (
        f"Generated from {name}.proto by tests/wire/generate_protobuf.py. Do not edit."
    )
    return (
        f'"""{made}"""\n\n'
        "from google.protobuf.internal import builder as _builder\n\n"
        f"{needed if name != 'definition' else ''}"
        "from rmqcli.wire.protobuf.pool import POOL as _POOL\n\n"
        f"DESCRIPTOR = _POOL.AddSerializedFile({serialized[1]})\n\n"
        "_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())\n"
        "_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())\n"
    )


def stub(types: str) -> str:
    """The types of a module, imported from where the module lies here."""
    here = types.replace(
        "from apache.rocketmq.v2 import", "from rmqcli.wire.protobuf import"
    )
    return f'# mypy: disable-error-code="type-arg"\n{here}'


if __name__ == "__main__":
    raise SystemExit(main())
