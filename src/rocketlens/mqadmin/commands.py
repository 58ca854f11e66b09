"""The commands, their options in RocketMQ's words, and the function of each.

Each command has a line ``name module.function [flags]: purpose``, and each option a line
``-letter name [flags] description``. A line with a deeper indent continues the text above. After
``4.9:`` comes the text of RocketMQ 4.9. Flags of a command:

============  ==================================================================
reads         read-only contexts allow it
no_names      -t and -g are not a topic and a group, and get no namespace
============  ==================================================================

Flags of an option; an underscore in its name is a space:

===================  ===========================================================
no_value             takes no value
spaced               its name ends in a space, as some of RocketMQ's do
required, forgiven   shown as required; missing it is an error unless forgiven
one_of, apart_in_4   exactly one option of the group is required; not in 4.9
only_5, only_4       only in the help of one release; always accepted
ours                 unknown to RocketMQ's tool: accepted only in full and after
                     two dashes, so that its command lines keep their meaning
writes               makes a reading command send a message or have one consumed
===================  ===========================================================
"""

import re
from collections.abc import Iterator
from typing import Final

from rocketlens.mqadmin.command_line import Option, SubCommand

_TABLE: Final = """
updateTopic topic_commands.update_topic: Update or create topic.
  -b brokerAddr [one_of] create topic to which broker
  -c clusterName [one_of] create topic to which cluster
  -a attributes [only_5] attribute(+a=b,+c=d,-e)
  -t topic [required] topic name
  -r readQueueNums set read queue nums
  -w writeQueueNums set write queue nums
  -p perm set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]
  -o order set topic's order(true|false)
  -u unit is unit topic (true|false)
  -s hasUnitSub has unit sub (true|false)

deleteTopic topic_commands.delete_topic: Delete topic from broker and NameServer.
  -t topic [required] topic name
  -c clusterName [required] delete topic from which cluster

updateTopicPerm topic_commands.update_permission: Update topic perm.
  -b brokerAddr create topic to which broker
  -c clusterName create topic to which cluster
  -t topic [required] topic name
  -p perm [required] set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]

topicRoute topic_commands.topic_route [reads]: Examine topic route info.
  -t topic [required] topic name
  -l list [no_value] Use list format to print data

topicStatus topic_commands.topic_status [reads]: Examine topic Status info.
  -t topic [required] topic name
  -c cluster [only_5] cluster name or lmq parent topic, lmq is used to find the route.

brokerStatus cluster_commands.broker_status [reads]: Fetch broker runtime status data.
  -b brokerAddr [one_of apart_in_4] Broker address
  -c clusterName [one_of apart_in_4] which cluster

haStatus cluster_commands.ha_status [reads]: Fetch ha runtime status data.
  -c clusterName which cluster
  -b brokerAddr which broker to fetch
  -i interval the interval(second) of get info

queryMsgById message_commands.by_id [reads]: Query Message by Id.
  -i msgId [required] Message Id
  -t topic [required forgiven only_5] topic name
  -g consumerGroup consumer group name
  -d clientId [writes] The consumer's client id
  -s sendMessage [writes] resend message
  -u unitName unit name
  -f bodyFormat [only_5] print message body by the specified format
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.

queryMsgByKey message_commands.by_key [reads]: Query Message by Key.
  -t topic [required] Topic name
      4.9: topic name
  -k msgKey [required] Message Key
  -b beginTimestamp [only_5] Begin timestamp(ms). default:0, eg:1676730526212
  -e endTimestamp [only_5] End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212
  -m maxNum [only_5] The maximum number of messages returned by the query, default:64
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.
  -p keyType [only_5] Index key type, default index key type is K, you can use K for keys OR T for
      tags
  -l lastKey [only_5] Last Key

queryMsgByUniqueKey message_commands.by_unique_key [reads]: Query Message by Unique key.
  -i msgId [required] Message Id
  -g consumerGroup consumer group name
  -d clientId [writes] The consumer's client id
  -t topic [required] The topic of msg
  -a showAll [no_value] Print all message, the limit is 32
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.
  -s startTime [only_5] startTime
  -e endTime [only_5] endTime

queryMsgByOffset message_commands.by_offset [reads]: Query Message by offset.
  -t topic [required] topic name
  -b brokerName [required] Broker Name
  -i queueId [required] Queue Id
  -o offset [required] Queue Offset
  -f bodyFormat [only_5] print message body by the specified format
  -r routeTopic [only_5] the topic which is used to find route info

printMsg message_commands.print_messages [reads]: Print Message Detail.
  -t topic [required] topic name
  -c charsetName [spaced] CharsetName(eg: UTF-8,GBK)
  -s subExpression [spaced] Subscribe Expression(eg: TagA || TagB)
  -b beginTimestamp [spaced] Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -e endTimestamp [spaced] End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -d printBody [spaced] print body
  -l lmqParentTopic [only_5] Lmq parent topic, lmq is used to find the route.

printMsgByQueue queue_commands.print_by_queue [reads]: Print Message Detail by queueId.
  -t topic [required] topic name
  -a brokerName [required spaced] broker name
  -i queueId [required spaced] queue id
  -c charsetName [spaced] CharsetName(eg: UTF-8,GBK)
  -s subExpression [spaced] Subscribe Expression(eg: TagA || TagB)
  -b beginTimestamp [spaced] Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -e endTimestamp [spaced] End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -p print_msg print msg. eg: true | false(default)
  -d printBody [spaced] print body. eg: true | false(default)
  -f calculate calculate by tag. eg: true | false(default)

queryCq queue_commands.entries [reads]: Query cq command.
  -t topic [required] topic name
  -q queue [required] queue num, ie. 1
  -i index [required] start queue index.
  -c count how many.
  -b broker broker addr.
  -g consumer consumer group.

dumpCompactionLog queue_commands.dump_compaction_log [reads]: Parse compaction log to message.
  -f file to dump file name

topicList topic_commands.topic_list [reads]: Fetch all topic list from name server.
  -c clusterModel [no_value] clusterModel

topicClusterList topic_commands.topic_clusters [reads]: Get cluster info for topic.
  -t topic [required] topic name

clusterList cluster_commands.cluster_list [reads]: List cluster infos.
  -m moreStats [no_value] Print more stats
  -i interval specify intervals numbers, it is in seconds
  -c clusterName [only_5] which cluster

sendMessage message_commands.send_message: Send a message.
  -t topic [required] Topic name
  -p body [required] UTF-8 string format of the message body
  -k key Message keys
  -c tags Message tags
  -b broker Send message to target broker
  -i qid Send message to target queue
  -m msgTraceEnable Message Trace Enable, Default: false

checkMsgSendRT message_commands.check_send_time: Check message send response time.
  -t topic [required] topic name
  -a amount message amount | default 100
  -s size message size | default 128 Byte

sendMsgStatus message_commands.send_status: Send msg to broker.
  -b brokerName [required] Broker Name e.g. clusterName_brokerName as DefaultCluster_broker-a
      4.9: Broker Name
  -s messageSize Message Size, Default: 128
  -c count send message count, Default: 50

decodeMessageId message_commands.decode_id [reads]: decode unique message ID
  -i messageId [required] unique message ID

updateSubGroup subscription_groups.update_group: Update or create subscription group.
  -b brokerAddr create subscription group to which broker
  -c clusterName create subscription group to which cluster
  -g groupName [required] consumer group name
  -s consumeEnable consume enable
  -m consumeFromMinEnable from min offset
  -d consumeBroadcastEnable broadcast
  -o consumeMessageOrderly [only_5] consume message orderly
  -q retryQueueNums retry queue nums
  -r retryMaxTimes retry max times
  -p groupRetryPolicy [only_5] the json string of retry policy ( exp:
      {"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}
      {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}} )
  -i brokerId consumer from which broker id
  -w whichBrokerWhenConsumeSlowly which broker id when consume slowly
  -a notifyConsumerIdsChanged notify consumerId changed
  -- attributes [only_5] attribute(+a=b,+c=d,-e)

deleteSubGroup subscription_groups.delete_group: Delete subscription group from broker.
  -b brokerAddr delete subscription group from which broker
  -c clusterName delete subscription group from which cluster
  -g groupName [required] subscription group name
  -r removeOffset remove offset

getConsumerConfig subscription_groups.consumer_config [reads]: Get consumer config by subscription
      group name.
  -g groupName [required] subscription group name

setConsumeMode subscription_groups.set_mode: Set consume message mode. pull/pop etc.
  -b brokerAddr create subscription group to which broker
  -c clusterName create subscription group to which cluster
  -t topicName [required] topic name
  -g groupName [required] consumer group name
  -m mode [required] consume mode. PULL/POP
  -q popShareQueueNum num of queue which share in pop mode

queryMsgTraceById message_commands.trace_by_id [reads]: Query a message trace.
  -i msgId [required] Message Id
  -t traceTopic The name value of message trace topic
  -b beginTimestamp [only_5] Begin timestamp(ms). default:0, eg:1676730526212
  -e endTimestamp [only_5] End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212
  -c maxNum [only_5] The maximum number of messages returned by the query, default:64

producerConnection consumers.producer_connection [reads]: Query producer's socket connection and
      client version.
  -g producerGroup [required] producer group name
  -t topic [required] topic name

consumerConnection consumers.consumer_connection [reads]: Query consumer's socket connection,
      client version and subscription.
  -g consumerGroup [required] consumer group name
  -b brokerAddr broker address

consumerProgress consumers.consumer_progress [reads]: Query consumer's progress, speed.
  -g groupName consumer group name
  -t topicName [only_5] topic name
  -s showClientIP Show Client IP per Queue
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.

brokerConsumeStats consumers.broker_consume_stats [reads]: Fetch broker consume stats data.
  -b brokerAddr [required] Broker address
  -t timeoutMillis request timeout Millis
  -l level threshold of print diff
  -o order order topic

consumerStatus consumers.consumer_status [reads]: Query consumer's internal data structure.
  -g consumerGroup [required] consumer group name
  -i clientId The consumer's client id
  -b brokerAddr broker address
  -s jstack [no_value] Run jstack command in the consumer progress

producer consumers.all_producers [reads]: Query producer's instances, connection, status, etc.
  -b broker [required] broker address

resetOffsetByTime subscription_groups.reset_offset: Reset consumer offset by timestamp(without
      client restart).
  -g group [required] set the consumer group
  -t topic [required] set the topic
  -s timestamp [required] set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -f force set the force rollback by timestamp switch[true|false]. Deprecated.
      4.9: set the force rollback by timestamp switch[true|false]
  -c cplus [only_4 no_value] reset c++ client offset
  -b broker [only_5] broker addr
  -q queue [only_5] queue id
  -o offset [only_5] Expect queue offset, not support old version broker
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.

skipAccumulatedMessage subscription_groups.skip_accumulated: Skip all messages that are accumulated
      (not consumed) currently.
  -g group [required] set the consumer group
  -t topic [required] set the topic
  -f force set the force rollback by timestamp switch[true|false]
  -c cluster [only_5] Cluster name or lmq parent topic, lmq is used to find the route.

cloneGroupOffset subscription_groups.clone_offset [no_names]: Clone offset from other group.
  -s srcGroup [required] set source consumer group
  -d destGroup [required] set destination consumer group
  -t topic [required] set the topic
  -o offline the group or the topic is offline

getBrokerConfig cluster_commands.broker_config [reads]: Get broker config by cluster or special
      broker.
  -b brokerAddr [one_of apart_in_4] get which broker
  -c clusterName [one_of apart_in_4] get which cluster

updateBrokerConfig cluster_commands.update_config: Update broker's config.
  -b brokerAddr update which broker
  -c clusterName update which cluster
  -a updateAllBroker [only_5] update all brokers include slave
  -k key [required] config key
  -v value [required] config value

wipeWritePerm cluster_commands.wipe_write_permission: Wipe write perm of broker in all name server
      you defined in the -n param.
  -b brokerName [required] broker name

addWritePerm cluster_commands.add_write_permission: Add write perm of broker in all name server
      you defined in the -n param.
  -b brokerName [required] broker name

consumeMessage message_commands.consume_message [reads]: Consume message.
  -t topic [required] Topic name
  -b brokerName Broker name
  -i queueId Queue Id
  -o offset Queue offset
  -g consumerGroup Consumer group name
  -s beginTimestamp [spaced] Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -e endTimestamp [spaced] End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]
  -c MessageNumber Number of message to be consumed

statsAll topic_commands.stats_all [reads]: Topic and Consumer tps stats.
  -a activeTopic [no_value] print active topic only
  -t topic print select topic only

getBrokerLiteInfo lite_commands.broker_info [reads no_names]: Get broker lite info.
  -b brokerAddr [one_of] Broker address
  -c cluster [one_of] Cluster name
  -d showDetail [no_value] Show topic and group detail info

getParentTopicInfo lite_commands.parent_topic_info [reads no_names]: Get parent topic info.
  -p parentTopic [required] Parent topic name

getLiteTopicInfo lite_commands.topic_info [reads no_names]: Get lite topic info.
  -p parentTopic [required] Parent topic name
  -l liteTopic [required] Lite topic name
  -s showClientId [no_value] Show all clientId

getLiteClientInfo lite_commands.client_info [reads no_names]: Get lite client info.
  -p parentTopic [required] Parent topic name
  -g group [required] Consumer group
  -c clientId [required] Client id
  -s showDetail [no_value] Show details

getLiteGroupInfo lite_commands.group_info [reads no_names]: Get lite group info.
  -p parentTopic [required] Parent topic name
  -g group [required] Consumer group
  -l liteTopic query lite topic detail
  -k topK topK value of each broker

triggerLiteDispatch lite_commands.trigger_dispatch [no_names]: Trigger Lite Dispatch.
  -p parentTopic [required] Parent topic name
  -g group [required] Consumer group
  -c clientId clientId (optional)
  -b brokerName brokerName (optional)

updateAclConfig account_commands.update [no_names]: Update acl config yaml file in broker
  -b brokerAddr [one_of] update acl config file to which broker
  -c clusterName [one_of] update acl config file to which cluster
  -a accessKey [required] set accessKey in acl config file
  -s secretKey [required] set secretKey in acl config file
  -w whiteRemoteAddress set white ip Address for account in acl config file
  -i defaultTopicPerm set default topicPerm in acl config file
  -u defaultGroupPerm set default GroupPerm in acl config file
  -t topicPerms set topicPerms list,eg: topicA=DENY,topicD=SUB
  -g groupPerms set groupPerms list,eg: groupD=DENY,groupD=SUB
  -m admin set admin flag in acl config file

deleteAclConfig account_commands.delete [no_names]: Delete Acl Config Account in broker
  -b brokerAddr [one_of] delete acl config account from which broker
  -c clusterName [one_of] delete acl config account from which cluster
  -a accessKey [required] set accessKey in acl config file for deleting which account

clusterAclConfigVersion account_commands.versions [reads no_names]: List all of acl config version
      information in cluster
  -b brokerAddr [one_of] query acl config version for which broker
  -c clusterName [one_of] query acl config version for specified cluster

updateGlobalWhiteAddr account_commands.update_white [no_names]: Update global white address for
      acl Config File in broker
  -b brokerAddr [one_of] update global white address to which broker
  -c clusterName [one_of] update global white address to which cluster
  -g globalWhiteRemoteAddresses [required] set globalWhiteRemoteAddress list,eg:
      10.10.103.*,192.168.0.*
  -p aclFileFullPath update global white address of specified acl file,eg: /xxx/plain_test.yml

getAclConfig account_commands.show [reads no_names]: List all of acl config information in cluster
  -b brokerAddr [one_of] query acl config version for which broker
  -c clusterName [one_of] query acl config version for specified cluster

createUser auth_commands.create_user [no_names]: Create user to cluster.
  -b brokerAddr [one_of only_5] create user to which broker
  -c clusterName [one_of only_5] create user to which cluster
  -u username [required] the username of user to create.
  -p password [required] the password of user to create
  -t userType the userType of user to create

updateUser auth_commands.update_user [no_names]: Update user to cluster.
  -b brokerAddr [one_of only_5] update user to which broker
  -c clusterName [one_of only_5] update user to which cluster
  -u username [required] the username of user to update.
  -p password the password of user to update
  -t userType the userType of user to update
  -s userStatus the userStatus of user to update

deleteUser auth_commands.delete_user [no_names]: Delete user from cluster.
  -b brokerAddr [one_of only_5] delete user from which broker
  -c clusterName [one_of only_5] delete acl from which cluster
  -u username [required] the username of user to delete.

getUser auth_commands.get_user [reads no_names]: Get user from cluster.
  -b brokerAddr [one_of only_5] get user for which broker
  -c clusterName [one_of only_5] get user for specified cluster
  -u username the username of user to get

listUser auth_commands.list_users [reads no_names]: List user from cluster.
  -b brokerAddr [one_of only_5] list user for which broker
  -c clusterName [one_of only_5] list user for specified cluster
  -f filter the filter to list users

copyUser auth_commands.copy_users [no_names]: Copy user to cluster.
  -f fromBroker [required] the source broker that the users copy from
  -t toBroker [required] the target broker that the users copy to
  -u usernames the username list of user to copy.

createAcl auth_commands.create_acl [no_names]: Create acl to cluster.
  -b brokerAddr [one_of only_5] create acl to which broker
  -c clusterName [one_of only_5] create acl to which cluster
  -s subject [required] the subject of acl to create.
  -r resources [required] the resources of acl to create
  -a actions [required] the actions of acl to create
  -i sourceIp the sourceIps of acl to create
  -d decision [required] the decision of acl to create

updateAcl auth_commands.update_acl [no_names]: Update acl to cluster.
  -b brokerAddr [one_of only_5] update acl to which broker
  -c clusterName [one_of only_5] update acl to which cluster
  -s subject [required] the subject of acl to update.
  -r resources [required] the resources of acl to update
  -a actions [required] the actions of acl to update
  -i sourceIp the sourceIps of acl to update
  -d decision [required] the decision of acl to update

deleteAcl auth_commands.delete_acl [no_names]: Delete acl from cluster.
  -b brokerAddr [one_of only_5] delete acl from which broker
  -c clusterName [one_of only_5] delete acl from which cluster
  -s subject [required] the subject of acl to delete.
  -r resources the resources of acl to delete

getAcl auth_commands.get_acl [reads no_names]: Get acl from cluster.
  -b brokerAddr [one_of only_5] get acl for which broker
  -c clusterName [one_of only_5] get acl for specified cluster
  -s subject the subject of acl to get

listAcl auth_commands.list_acls [reads no_names]: List acl from cluster.
  -b brokerAddr [one_of only_5] list acl for which broker.
  -c clusterName [one_of only_5] list acl for specified cluster.
  -s subject the subject of acl to filter.
  -r resource the resource of acl to filter.

copyAcl auth_commands.copy_acls [no_names]: Copy acl to cluster.
  -f fromBroker [required] the source broker that the acls copy from
  -t toBroker [required] the target broker that the acls copy to
  -s subjects the subject list of acl to copy.
"""

_COMMAND: Final = re.compile(
    r"(?P<name>\w+) (?P<function>[\w.]+)(?: \[(?P<flags>.*?)\])?: (?P<text>.*)"
)
_OPTION: Final = re.compile(
    r"-(?P<short>.) (?P<name>\S+)(?: \[(?P<flags>[a-z_0-9 ]*)\])? (?P<text>.*)"
)
_OF_4: Final = " 4.9: "


def _commands() -> Iterator[SubCommand]:
    """Parse the table."""
    for part in _TABLE.strip().split("\n\n"):
        head, *options = part.replace("\n      ", " ").split("\n  ")
        matched = _COMMAND.fullmatch(head)
        assert matched is not None, head  # noqa: S101 - a mistake in the table
        module, _, function = matched["function"].rpartition(".")
        flags = (matched["flags"] or "").split()
        yield SubCommand(
            matched["name"],
            matched["text"],
            f"rocketlens.mqadmin.{module}",
            function,
            tuple(map(_option, options)),
            namespaced="no_names" not in flags,
            only_reads="reads" in flags,
        )


def _option(line: str) -> Option:
    matched = _OPTION.fullmatch(line)
    assert matched is not None, line  # noqa: S101 - a mistake in the table
    flags = (matched["flags"] or "").split()
    text, _, text_of_4 = matched["text"].partition(_OF_4)
    return Option(
        matched["short"].replace("-", ""),
        matched["name"].replace("_", " ") + " " * ("spaced" in flags),
        text,
        frozenset(flags),
        text_of_4 or None,
    )


COMMANDS: Final = tuple(_commands())

ONLY_REAL: Final = (
    *("addBroker", "allocateMQ", "checkRocksdbCqWriteProgress", "cleanBrokerMetadata"),
    *("cleanExpiredCQ", "cleanUnusedTopic", "clusterRT", "deleteExpiredCommitLog"),
    *("deleteKvConfig", "electMaster", "exportConfigs", "exportMetadata"),
    *("exportMetadataInRocksDB", "exportMetrics", "exportPopRecord", "getBrokerEpoch"),
    *("getColdDataFlowCtrInfo", "getControllerConfig", "getControllerMetaData"),
    *("getNamesrvConfig", "getSyncStateSet", "remappingStaticTopic", "removeBroker"),
    *("removeColdDataFlowCtrGroupConfig", "resetMasterFlushOffset", "rocksDBConfigToJson"),
    *("setCommitLogReadAheadMode", "startMonitoring", "switchTimerEngine"),
    *("updateColdDataFlowCtrGroupConfig", "updateControllerConfig", "updateKvConfig"),
    *("updateNamesrvConfig", "updateOrderConf", "updateStaticTopic", "updateSubGroupList"),
    *("updateTopicList"),
)
"""Commands of RocketMQ 5.5.0's tool that are missing here."""
