"""Talks with `rmq mcp` by the SDK's own client, over stdio."""

from __future__ import annotations

import sys

import anyio


def talk(folder, namesrv, conversation, *, options=()):
    """Start a server with its state in `folder`, run an async function of a session.

    Without `namesrv` the options have to name the cluster, such as by a profile.
    """
    # The SDK takes a second to load: not for each worker that only collects the tests.
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "rmqcli", "mcp", *(["-n", namesrv] if namesrv else []), *options],
        env={
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "NAMESRV_ADDR": "127.0.0.1:9",
        },
    )

    async def main():
        with open(folder / "stderr", "w", encoding="utf-8") as errors:
            async with (
                stdio_client(server, errlog=errors) as (reading, writing),
                ClientSession(reading, writing) as session,
            ):
                await session.initialize()
                return await conversation(session)

    return anyio.run(main)


def call_tools(folder, namesrv, *calls, options=()):
    """Make some calls, (name, arguments), and return their results."""

    async def conversation(session):
        return [await session.call_tool(name, args) for name, args in calls]

    return talk(folder, namesrv, conversation, options=options)
