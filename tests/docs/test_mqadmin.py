"""The guide "coming from mqadmin" has each command of mqadmin 5.5.0."""

from __future__ import annotations

import re

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


def test_each_command_of_mqadmin_has_a_row_with_ours_or_a_reason():
    text = (ROOT / "rmqcli/docs/mqadmin.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    found = [name for first, _ in rows for name in re.findall(r"`(\w+)`", first)]
    assert len(NAMES) == 96
    assert sorted(name for name in NAMES if name not in found) == []
    assert [name for name in found if found.count(name) > 1] == []
    assert [first for first, second in rows if not second.strip()] == []
