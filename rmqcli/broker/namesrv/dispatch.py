"""Who answers which request to a name server.

Source: `DefaultRequestProcessor` and `ClientRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.namesrv import admin, registration, topics
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.namesrv.core import NameServer
    from rmqcli.broker.request import Reply, Request

NAMESRV_PROCESSORS: dict[int, Callable[[NameServer, Request], Reply]] = {
    RequestCode.PUT_KV_CONFIG: admin.put_kv_config,
    RequestCode.GET_KV_CONFIG: admin.get_kv_config,
    RequestCode.DELETE_KV_CONFIG: admin.delete_kv_config,
    RequestCode.GET_KVLIST_BY_NAMESPACE: admin.get_kv_list,
    RequestCode.GET_NAMESRV_CONFIG: admin.get_config,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: admin.wipe_write_perm,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: admin.add_write_perm,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: topics.get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: topics.get_cluster_info,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.get_topics,
    RequestCode.GET_TOPICS_BY_CLUSTER: topics.get_topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: topics.get_system_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: topics.delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: topics.register_topic,
    RequestCode.REGISTER_BROKER: registration.register_broker,
    RequestCode.UNREGISTER_BROKER: registration.unregister_broker,
    RequestCode.QUERY_DATA_VERSION: registration.query_data_version,
    RequestCode.BROKER_HEARTBEAT: registration.broker_heartbeat,
}
