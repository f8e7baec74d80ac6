"""Every screen of `rmq top` as a whole, compared with a file that was looked at.

The files are in `snapshots`, one for each screen and size. After a change that is meant
to be seen, `python -m pytest tests/cli/top/test_snapshots.py --write-snapshots` writes
them anew, and the difference is reviewed like code. What depends on the moment, such as
times and ports, is masked by as many characters.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqcli import Consumer
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import ManualClock, faults
from tests.admin.dlq.letters import make_letters
from tests.cli.top.screen import cluster_of, on_screen
from tests.cli.top.test_app import commit
from tests.kit.waiting import wait_until

FOLDER = Path(__file__).with_name("snapshots")
SIZES = [(80, 24), (120, 40)]
_NEVER_MS = 3_600_000


def zeros(found):
    return re.sub(r"[0-9A-Fa-f]", "0", found[0])


#: What depends on the moment, and what stands in its place.
MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", zeros),
    (r"\d\d:\d\d:\d\d", zeros),
    (r"127\.0\.0\.1:\d{5}", lambda found: f"127.0.0.1:{'0' * (len(found[0]) - 10)}"),
    (r"\b[0-9A-F]{32}\b", zeros),
)


def masked(screen):
    """Return the text of a screen without what depends on the moment."""
    text = "\n".join(line.rstrip() for line in screen.lines) + "\n"
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return text


def loosely(text):
    """Return a text in which durations and numbers are masked whatever their width."""
    text = re.sub(r"\b\d+(\.\d+)?(ms|s|m)\b", "DURATION", text)
    text = re.sub(r"\b127\.\S*", "ADDRESS", text)
    text = re.sub(r"\d{2,}", "N", text)
    return re.sub(r"  +", "  ", text)


def numberless(text):
    """Return a text without any number of its own."""
    return re.sub(r"  +", "  ", re.sub(r"\d+(\.\d+)*", "N", text))


def rateless(text):
    """Return a text in which rates are masked by as many characters."""
    return re.sub(r" +\d+\.\d(?=\s)", lambda found: "0.0".rjust(len(found[0])), text)


@pytest.fixture
def cluster():
    """Groups in three states, one of them with a member, and a dead letter."""
    # Its clock stands still, so that ages do, too.
    with EmbeddedCluster(clock=ManualClock(SYSTEM_CLOCK.epoch_ms())) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.create_topic("quiet", queues=1)
        for number in range(4):
            body = f'{{"order": {number}, "amount": {number * 25}}}'
            seed = Seed(body=body.encode(), properties={"KEYS": f"order-{number}"})
            cluster.send("orders", [seed], tags="NEW")
        commit(cluster, "billing", "orders", 1)
        commit(cluster, "idle", "quiet", 0)
        cluster.create_group("never-committed")
        yield cluster


async def screens_of(screen, cluster):
    """Go through all screens; return their texts by name."""
    found = {}

    async def take(name, *texts, mask=lambda text: text):
        await screen.until(*texts)
        await screen.until_gone("reading ...")
        await screen.until_settled()
        found[name] = mask(masked(screen))

    await take("groups", "billing", "never-committed", "STOPPED")
    await screen.press("/")
    await take("groups-filter-question", "show only rows with:")
    await screen.type("bill")
    await take("groups-filtered", "(1 by state)")
    await screen.press("enter")
    await take("group-queues", "billing has")
    await screen.press("tab")
    await take("group-members", "[members]", "none")
    await screen.press("tab")
    await take("group-process-queues", "[process queues]", "none")
    await screen.press("tab", "end", "t")
    await take("tail", "tail orders broker-a:0", "order-3")
    await screen.press("enter")
    await take("message-verdicts", "[verdicts]", "waiting")
    await screen.press("tab")
    await take("message-text", "[message]", "order")
    await screen.press("escape", "escape", "r")
    await take("reset-question", "reset billing in orders to")
    await screen.type("earliest")
    await take("reset-plan", "x changes the offsets in 1 queue")
    await screen.press("x")
    await take("reset-confirm", "Type billing to confirm:")
    await screen.press("escape", "escape", "d")
    await take("dead-letters", "ORIGIN", "broken")
    await screen.press("enter")
    await take("dead-letter", "no group of its topic is known")
    await screen.press("o")
    await take("dead-letter-origin", "a copy is in the dead-letter topic")
    await screen.press("2")
    await take("topics", "quiet", "IN/S")
    await screen.press("enter")
    await take("topic-queues", "groups: billing", "MAX")
    await screen.press("tab")
    await take("topic-groups", "[groups]", "STOPPED")
    await screen.press("3")
    await take("brokers", "DefaultCluster: 1 broker", mask=rateless)
    await screen.press("enter")
    await take("broker-runtime", "brokerVersionDesc", mask=numberless)
    await screen.press("tab")
    await take("broker-settings", "[settings]", "brokerRole", mask=loosely)
    await screen.press("?")
    await take("help", "WHAT IT DOES")
    await screen.press("escape", "1", "/", "backspace", "enter")
    await screen.until("idle")
    with Consumer("idle", "quiet", lambda _m: None, namesrv=cluster.namesrv) as member:
        wait_until(lambda: member.queues)
        await screen.press("f")
        await screen.type("idle")
        await screen.press("enter")
        await take("member-queues", "1 member is online", mask=loosely)
        await screen.press("tab")
        await take("members", "PYTHON", mask=loosely)
        await screen.press("tab")
        await take("process-queues", "LAST PULL", mask=loosely)
    await screen.press("escape")
    # A broker that hangs needs a limit, which a busy machine reaches elsewhere, too.
    cluster.faults.add(faults.disconnect(), broker="broker-a")
    await screen.press("space")
    await take("no-answer", "no answer since", "UNKNOWN")
    cluster.faults.clear()
    # A clock that stands still would be what is wrong with the broker.
    clock = cluster.options.clock
    clock.now_ms = SYSTEM_CLOCK.epoch_ms()
    await screen.press("4")
    await take("doctor", "access-control", mask=loosely)
    clock.now_ms = SYSTEM_CLOCK.epoch_ms()
    await screen.press("5")
    await take("clusters", "no answer", "warning")
    await screen.resize(20, 5)
    await screen.until("The terminal has 20")
    found["too-small"] = masked(screen)
    return found


async def refused(screen):
    """Return the screen of a cluster without a name server."""
    await screen.until("connection refused")
    return masked(screen)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_is_as_it_was_looked_at(cluster, request, width, height):
    make_letters(cluster, "billing", "orders", ["broken"])
    dead = cluster_of(
        "127.0.0.1:1",
        name="stage",
        title="profile stage",
        flags=("--profile", "stage"),
        rule="protected",
    )
    found = on_screen(
        cluster.namesrv,
        lambda screen: screens_of(screen, cluster),
        size=(width, height),
        timeout_ms=_NEVER_MS,
        interval_ms=_NEVER_MS,
        allow_changes=True,
        others=lambda: [dead],
    )
    found["unreachable"] = on_screen("127.0.0.1:1", refused, size=(width, height))
    suffix = f"-{width}x{height}.txt"
    if request.config.getoption("write_snapshots"):
        FOLDER.mkdir(exist_ok=True)
        for name, text in found.items():
            FOLDER.joinpath(name + suffix).write_text(text, encoding="utf-8")
        pytest.skip("the snapshots are written; look at them")
    expected = {
        path.name.removesuffix(suffix): path.read_text(encoding="utf-8")
        for path in FOLDER.glob(f"*{suffix}")
    }
    assert found == expected
