"""The guide "coming from mqadmin" has each command of mqadmin, and so have the hints.

That the names are those of mqadmin is in tests/cli/test_mqadmin_real.py.
"""

from __future__ import annotations

import re

import pytest

from rmqcli.cli.main import run
from tests.kit.documents import ROOT

#: As mqadmin 5.5.0 lists them.
_TEXT = """
    addBroker addWritePerm allocateMQ brokerConsumeStats brokerStatus checkMsgSendRT
    checkRocksdbCqWriteProgress cleanBrokerMetadata cleanExpiredCQ cleanUnusedTopic
    cloneGroupOffset clusterList clusterRT consumeMessage consumerConnection
    consumerProgress consumerStatus copyAcl copyUser createAcl createUser deleteAcl
    deleteExpiredCommitLog deleteKvConfig deleteSubGroup deleteTopic deleteUser
    dumpCompactionLog electMaster exportConfigs exportMetadata
    exportMetadataInRocksDB exportMetrics exportPopRecord getAcl getBrokerConfig
    getBrokerEpoch getBrokerLiteInfo getColdDataFlowCtrInfo getConsumerConfig
    getControllerConfig getControllerMetaData getLiteClientInfo getLiteGroupInfo
    getLiteTopicInfo getNamesrvConfig getParentTopicInfo getSyncStateSet getUser
    haStatus listAcl listUser printMsg printMsgByQueue producer producerConnection
    queryCq queryMsgById queryMsgByKey queryMsgByOffset queryMsgByUniqueKey
    queryMsgTraceById remappingStaticTopic removeBroker
    removeColdDataFlowCtrGroupConfig resetMasterFlushOffset resetOffsetByTime
    rocksDBConfigToJson sendMessage sendMsgStatus setCommitLogReadAheadMode
    setConsumeMode skipAccumulatedMessage startMonitoring statsAll switchTimerEngine
    topicClusterList topicList topicRoute topicStatus triggerLiteDispatch updateAcl
    updateBrokerConfig updateColdDataFlowCtrGroupConfig updateControllerConfig
    updateKvConfig updateNamesrvConfig updateOrderConf updateStaticTopic
    updateSubGroup updateSubGroupList updateTopic updateTopicList updateTopicPerm
    updateUser wipeWritePerm
"""
NAMES = _TEXT.split()
#: Those of 4.6.0 and 4.9.7 that 5.5.0 no longer has.
OLD_NAMES = [
    "clusterAclConfigVersion",
    "deleteAccessConfig",
    "deleteAclConfig",
    "getAccessConfigSubCommand",
    "getAclConfig",
    "updateAclConfig",
    "updateGlobalWhiteAddr",
]


def rows():
    """Return the names of mqadmin and the second cell, of each row of the tables."""
    text = (ROOT / "rmqcli/docs/mqadmin.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    return [(re.findall(r"`(\w+)`", first), second) for first, second in found]


def test_each_command_of_mqadmin_has_a_row_with_ours_or_a_reason():
    found = [name for names, _ in rows() for name in names]
    assert len(NAMES) == 96
    assert sorted(name for name in NAMES + OLD_NAMES if name not in found) == []
    assert [name for name in found if found.count(name) > 1] == []
    assert [names for names, second in rows() if not second.strip()] == []


@pytest.mark.parametrize("name", NAMES + OLD_NAMES)
def test_who_types_a_command_of_mqadmin_is_told_what_its_row_says(name, capsys):
    (second,) = (second for names, second in rows() if name in names)
    assert run([name]) == 2
    *_, hint = capsys.readouterr().err.strip().splitlines()
    if not second.startswith("`rmq "):
        assert hint == "hint: why rmq does not have it: rmq help mqadmin"
        return
    # Up to the first word that stands for a name or a value.
    commands = re.findall(r"`(rmq(?: [a-z-]+)+)", second)
    assert hint.startswith(tuple(f"hint: write: {each}" for each in commands))
