"""Signs requests for brokers with access control (the same way for ACL 1.0 and 2.0).

The signature covers the values of all extension fields, in the order of their names,
and the body. Nothing may be added to a request after it is signed.

Source: AclClientRPCHook, AclUtils, AclSigner in apache/rocketmq.
"""

from __future__ import annotations

import base64
from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

from rmqcli.checked import check_fields
from rmqcli.errors import ConfigError

ACCESS_KEY = "AccessKey"  # SessionCredentials.ACCESS_KEY
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # SessionCredentials.SECURITY_TOKEN
SIGNATURE = "Signature"  # SessionCredentials.SIGNATURE


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys with which a client signs requests; `repr` shows the access key only.

    Raises ConfigError when a key is empty, because nothing can be signed with it,
    and TypeError for anything else than texts.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, ranges={})
        if not self.access_key or not self.secret_key:
            raise ConfigError("credentials need an access key and a secret key")


def sign(
    ext_fields: Mapping[str, str], body: bytes, credentials: Credentials
) -> dict[str, str]:
    """Return the fields to send: `ext_fields` with access key, token and signature.

    Pass the fields exactly as they will be sent. Do not send `_UNIQUE_KEY_QUERY` with
    credentials: brokers disagree on whether it is signed.
    """
    fields = dict(ext_fields)
    fields.pop(SIGNATURE, None)
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    content = content_to_sign(fields, body)
    fields[SIGNATURE] = signature(content, credentials.secret_key)
    return fields


def content_to_sign(ext_fields: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes that a signature covers, without a `Signature` field."""
    # String.compareTo compares UTF-16 code units, not code points.
    names = sorted(
        ext_fields, key=lambda each: each.encode("utf-16-be", "surrogatepass")
    )
    values = [ext_fields[name] for name in names if name != SIGNATURE]
    return "".join(values).encode("utf-8", "replace") + body


def signature(content: bytes, secret_key: str) -> str:
    """Return the HMAC-SHA1 of `content` in base64."""
    # Loads OpenSSL; a command without credentials should not wait for that.
    import hmac

    digest = hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1")
    return base64.b64encode(digest).decode("ascii")
