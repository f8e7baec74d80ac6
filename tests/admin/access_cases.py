"""Users, their rules and what brokers decide: one table for `decide` and 5.5.0.

A right is `RESOURCE ACTIONS`, with `!` before it to deny, `?` for the policy Default
and ` from NETWORKS` at its end. A question is asked from 127.0.0.1 with a request that
needs exactly this right.
"""

from __future__ import annotations

from typing import Any

from rmqcli.admin.definitions.model import rule_name

#: user -> rights
RIGHTS: dict[str, list[str]] = {
    "none": [],
    "exact": ["Topic:orders Pub"],
    "all-actions": ["Topic:orders All"],
    "prefix": ["Topic:or* Pub"],
    "any-topic": ["Topic:* Pub,Get"],
    "anything": ["* All"],
    "exact-denied": ["!Topic:orders Pub", "Topic:or* Pub", "Topic:* Pub", "* All"],
    "exact-allowed": ["Topic:orders Pub", "!Topic:or* Pub", "!Topic:* Pub", "!* All"],
    "longest": ["!Topic:o* Pub", "Topic:ord* Pub", "!Topic:or* Pub"],
    "longest-denied": ["Topic:o* Pub", "!Topic:ord* Pub", "Topic:or* Pub"],
    "other-action": ["Topic:orders Get", "!Topic:* Pub", "* All"],
    "type-first": ["!Topic:* Pub", "* All"],
    "default-only": ["?Topic:orders Pub"],
    "custom-first": ["!Topic:* Pub", "?Topic:orders Pub"],
    "default-else": ["Group:orders Sub", "?Topic:* Pub"],
    "from-here": ["Topic:orders Pub from 127.0.0.0/8"],
    "from-elsewhere": ["Topic:orders Pub from 10.0.0.0/8,192.168.0.1"],
    "one-address": ["Topic:orders Pub from 127.0.0.1"],
    "elsewhere-denied": ["!Topic:orders Pub from 10.0.0.0/8", "Topic:or* Pub"],
}
#: (user, resource, action) -> whether it is allowed, and the resource of the rule
CASES: dict[tuple[str, str, str], tuple[bool, str | None]] = {
    ("none", "Topic:orders", "Pub"): (False, None),
    ("exact", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("exact", "Topic:orders", "Get"): (False, None),
    ("exact", "Topic:orders2", "Pub"): (False, None),
    ("all-actions", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("all-actions", "Topic:orders", "Get"): (True, "Topic:orders"),
    ("prefix", "Topic:orders", "Pub"): (True, "Topic:or*"),
    ("prefix", "Topic:payments", "Pub"): (False, None),
    ("any-topic", "Topic:payments", "Pub"): (True, "Topic:*"),
    ("any-topic", "Topic:payments", "Get"): (True, "Topic:*"),
    ("any-topic", "Cluster:DefaultCluster", "Get"): (False, None),
    ("anything", "Topic:orders", "Pub"): (True, "*"),
    ("anything", "Cluster:DefaultCluster", "Get"): (True, "*"),
    ("exact-denied", "Topic:orders", "Pub"): (False, "Topic:orders"),
    ("exact-denied", "Topic:orders", "Get"): (True, "*"),
    ("exact-denied", "Topic:order", "Pub"): (True, "Topic:or*"),
    ("exact-allowed", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("exact-allowed", "Topic:order", "Pub"): (False, "Topic:or*"),
    ("exact-allowed", "Topic:payments", "Pub"): (False, "Topic:*"),
    ("exact-allowed", "Topic:orders", "Get"): (False, "*"),
    ("longest", "Topic:orders", "Pub"): (True, "Topic:ord*"),
    ("longest", "Topic:orange", "Pub"): (False, "Topic:or*"),
    ("longest-denied", "Topic:orders", "Pub"): (False, "Topic:ord*"),
    ("longest-denied", "Topic:orange", "Pub"): (True, "Topic:or*"),
    ("other-action", "Topic:orders", "Pub"): (False, "Topic:*"),
    ("other-action", "Topic:orders", "Get"): (True, "Topic:orders"),
    ("type-first", "Topic:orders", "Pub"): (False, "Topic:*"),
    ("type-first", "Topic:orders", "Get"): (True, "*"),
    ("default-only", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("custom-first", "Topic:orders", "Pub"): (False, "Topic:*"),
    ("default-else", "Topic:orders", "Pub"): (True, "Topic:*"),
    ("from-here", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("from-elsewhere", "Topic:orders", "Pub"): (False, None),
    ("one-address", "Topic:orders", "Pub"): (True, "Topic:orders"),
    ("elsewhere-denied", "Topic:orders", "Pub"): (True, "Topic:or*"),
}


def rules_of(user: str) -> dict[str, dict[str, Any]]:
    """Return the rules of a user of the table, by name."""
    rules = {}
    for right in RIGHTS[user]:
        words, _, sources = right.partition(" from ")
        resource, actions = words.lstrip("!?").split(" ")
        policy_type = "Default" if words.startswith("?") else "Custom"
        rules[rule_name(user, resource, policy_type)] = {
            "actions": actions.split(","),
            "decision": "Deny" if words.startswith("!") else "Allow",
            "source_ips": sources.split(",") if sources else [],
        }
    return rules
