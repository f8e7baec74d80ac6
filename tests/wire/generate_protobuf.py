"""Generate the Python code of the checked-in .proto files.

    pip install 'grpcio-tools>=1.76' && python -m tests.wire.generate_protobuf

`definition.proto` and `service.proto` in `rmqcli/wire/protobuf` are those of the tag
v2.1.2 of https://github.com/apache/rocketmq-apis, unchanged; the proxy of RocketMQ
5.5.0 is built from the same tag. To move to a newer tag, replace them and run this
command.
`reflection.proto` is our own definition of gRPC's service grpc.reflection.v1alpha.

protoc's output is changed in three ways:

- the types are registered in a separate descriptor pool, so that a program may also
  load RocketMQ's official Python client, which defines the same names;
- the generated check of the protobuf runtime's version is left out, because it refuses
  runtimes that are two major versions newer, and the code uses nothing that it guards;
- imports name `rmqcli.wire.protobuf`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "rmqcli" / "wire" / "protobuf"
#: Each file, and the path under which it is compiled and imported.
FILES = {
    "definition": "apache/rocketmq/v2",
    "service": "apache/rocketmq/v2",
    "reflection": "grpc/reflection/v1alpha",
}


def main() -> int:
    """Write two modules for each .proto file; return protoc's exit code if it fails."""
    with tempfile.TemporaryDirectory() as work:
        for name, package in FILES.items():
            source = Path(work) / "protos" / package
            source.mkdir(parents=True, exist_ok=True)
            text = (FOLDER / f"{name}.proto").read_text()
            (source / f"{name}.proto").write_text(text)
        out = Path(work) / "out"
        out.mkdir()
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"-I{work}/protos",
            *(f"--python_out={out}", f"--pyi_out={out}"),
            *(f"{package}/{name}.proto" for name, package in FILES.items()),
        ]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status
        for name, package in FILES.items():
            code = (out / package / f"{name}_pb2.py").read_text()
            types = (out / package / f"{name}_pb2.pyi").read_text()
            (FOLDER / f"{name}_pb2.py").write_text(module(name, code))
            (FOLDER / f"{name}_pb2.pyi").write_text(stub(types))
    return 0


def module(name: str, code: str) -> str:
    """Return the source of the module that registers a file's types in our pool."""
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
        f"{needed if name == 'service' else ''}"
        "from rmqcli.wire.protobuf.pool import POOL as _POOL\n\n"
        f"DESCRIPTOR = _POOL.AddSerializedFile({serialized[1]})\n\n"
        "_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())\n"
        "_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())\n"
    )


def stub(types: str) -> str:
    """Return the type stub of a module, with imports from this package."""
    here = types.replace(
        "from apache.rocketmq.v2 import", "from rmqcli.wire.protobuf import"
    )
    return f'# mypy: disable-error-code="type-arg"\n{here}'


if __name__ == "__main__":
    raise SystemExit(main())
