"""The dashboard and the rules use metrics and labels that exist."""

from __future__ import annotations

import json
import re

import yaml  # type: ignore[import-untyped]  # it ships no types

from rmqcli.admin.lag.model import GroupState
from rmqcli.exporter.assets import read_asset
from rmqcli.exporter.metrics import TABLES
from tests.kit.rows import each_row

LABELS = {
    metric.name: set(table.labels) for table in TABLES for metric in table.metrics
}
RULES = [
    rule
    for group in yaml.safe_load(read_asset("rules.yml"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads(read_asset("dashboard.json"))
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
]


def metrics_of(expression):
    return re.findall(r"\b(rocketmq_\w+)", expression)


@each_row("expression", EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_exist(expression):
    names = metrics_of(expression)
    assert names
    assert [name for name in names if name not in LABELS] == []
    for name, selector in re.findall(r"\b(rocketmq_\w+)\{([^}]*)\}", expression):
        used = re.findall(r"(\w+)(?:=~|!~|!=|=)", selector)
        assert set(used) <= LABELS[name], expression
    for by in re.findall(r"by \(([^)]*)\)", expression):
        of_all = set.intersection(*(LABELS[name] for name in names))
        assert set(by.replace(" ", "").split(",")) <= of_all
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_a_rule_has_what_an_alert_needs():
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        of_metrics = [LABELS[name] for name in metrics_of(rule["expr"])]
        text = " ".join(rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", text))
        assert used <= set.intersection(*of_metrics), rule["alert"]


def test_states_that_rules_and_panels_name_exist():
    named = {
        state
        for expression in EXPRESSIONS
        for states in re.findall(r'state(?:=~|!~|=)"([A-Z_|]+)"', expression)
        for state in states.split("|")
    }
    assert named - {state.value for state in GroupState} == set()
    assert {"STOPPED", "STALLED", "UNKNOWN"} <= named


def test_legends_name_labels_that_exist():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            of_metrics = [LABELS[name] for name in metrics_of(target["expr"])]
            assert used <= set.intersection(*of_metrics), target["expr"]


def test_panels_do_not_overlap_and_variables_are_of_metrics_that_exist():
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for variable in DASHBOARD["templating"]["list"][1:]:
        found = re.fullmatch(
            r"label_values\((\w+), (\w+)\)", variable["query"]["query"]
        )
        assert found is not None
        assert found[2] in LABELS[found[1]]
        assert f"${variable['name']}" in json.dumps(DASHBOARD["panels"])
