"""gRPC server reflection, by which grpcurl learns which services the proxy has.

Only v1alpha, as in RocketMQ's proxies; no account is needed. As in Java, clients can
query services, methods and messages by name, but not enums and fields.

Source: `ProtoReflectionService` in grpc/grpc-java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

from rmqcli.wire.protobuf import reflection_pb2, service_pb2
from rmqcli.wire.protobuf.reflection_pb2 import (
    ErrorResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.descriptor import Descriptor, FileDescriptor

SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"
METHOD: Final = "ServerReflectionInfo"

_NOT_FOUND: Final[int] = grpc.StatusCode.NOT_FOUND.value[0]
_UNIMPLEMENTED: Final[int] = grpc.StatusCode.UNIMPLEMENTED.value[0]
#: The error message when something is not found, by the kind of request.
_MISSING: Final = {
    "file_by_filename": "File not found.",
    "file_containing_symbol": "Symbol not found.",
    # The protocol has no extensions.
    "file_containing_extension": "Extension not found.",
    "all_extension_numbers_of_type": "Type not found.",
}


class Reflection:
    """Answers from the descriptors of the services. Immutable."""

    def __init__(self) -> None:
        served = (reflection_pb2.DESCRIPTOR, service_pb2.DESCRIPTOR)
        self._services = [
            ServiceResponse(name=service.full_name)
            for file in served
            for service in file.services_by_name.values()
        ]
        files = [each for file in served for each in _with_imports(file)]
        self._by_request: dict[str, Mapping[str, FileDescriptor]] = {
            "file_by_filename": {file.name: file for file in files},
            "file_containing_symbol": {
                name: file for file in files for name in _symbols(file)
            },
        }

    def answer(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        """Return the answer to one request of a stream."""
        kind = request.WhichOneof("message_request")
        answer: dict[str, Any]
        if kind == "list_services":
            services = ListServiceResponse(service=self._services)
            answer = {"list_services_response": services}
        elif kind is None:
            answer = _error(_UNIMPLEMENTED, "not implemented MESSAGEREQUEST_NOT_SET")
        else:
            files = self._by_request.get(kind, {})
            asked = getattr(request, kind)
            file = files.get(asked) if isinstance(asked, str) else None
            answer = _error(_NOT_FOUND, _MISSING[kind])
            if file is not None:
                parts = [each.serialized_pb for each in _with_imports(file)]
                found = FileDescriptorResponse(file_descriptor_proto=parts)
                answer = {"file_descriptor_response": found}
        return ServerReflectionResponse(
            valid_host=request.host, original_request=request, **answer
        )


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_response": ErrorResponse(error_code=code, error_message=message)}


def _with_imports(file: FileDescriptor) -> list[FileDescriptor]:
    """Return a file and all files that it imports, each once, the nearest first."""
    found = {file.name: file}
    for each in (waiting := [file]):
        new = [other for other in each.dependencies if other.name not in found]
        found |= {other.name: other for other in new}
        waiting += new
    return list(found.values())


def _symbols(file: FileDescriptor) -> Iterable[str]:
    """Yield the full names of a file's services, methods and messages."""
    for service in file.services_by_name.values():
        yield service.full_name
        for method in service.methods:
            yield method.full_name
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    for message in messages:
        yield message.full_name
        messages += message.nested_types
