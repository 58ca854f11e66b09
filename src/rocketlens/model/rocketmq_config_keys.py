"""RocketMQ's configuration keys, and the treatment of keys that RocketLens does not implement.

The same rule applies to ``broker.conf``, ``namesrv.conf``, and the arguments of
:func:`rocketlens.testing.cluster`:

==================================================  ===========================================
a key that is not implemented and                   is
==================================================  ===========================================
asks for access control, or for other TLS           refused: protection would be off unnoticed
is not a key of RocketMQ, but resembles one         refused; the error suggests the nearest key
is a key of RocketMQ, or resembles none             named in a warning
==================================================  ===========================================

A file can be written for another broker; arguments of a program are not. Therefore, arguments that
resemble no key are refused, too.

Sources: the setters of ``BrokerConfig``, ``MessageStoreConfig``, ``NettyServerConfig``,
``NettyClientConfig``, ``NamesrvConfig``, ``ControllerConfig`` and ``AuthConfig``, of RocketMQ 4.9.7
and 5.5.0.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.text.nearest import nearest

ACCESS_CONTROL: Final = (
    "name servers have no access control, here as in RocketMQ, and every client that reaches the "
    "port could change routes; remove the key, and let only trusted clients reach the port"
)
OTHER_TLS: Final = "this TLS setting is not supported here; remove the key, or use another server"

_REFUSED_WHEN_TRUE: Final = {
    "aclEnable": ACCESS_CONTROL,
    "authenticationEnabled": ACCESS_CONTROL,
    "authorizationEnabled": ACCESS_CONTROL,
    "migrateAuthFromV1Enabled": ACCESS_CONTROL,
    "useTLS": "set tls.enable=true instead",
}
_TLS_PREFIX: Final = "tls."
_MIN_SIMILARITY: Final = 0.83
"""The minimum similarity of a key and a suggested key, up to 1."""
_MAX_SHOWN: Final = 100

_NAMES: Final = """
accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable
accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable adminBrokerThreadPoolNums
adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet allowRecallWhenBrokerNotWriteable
appendAckAsync appendCkAsync appendTopicForTimerDeleteKey asyncLearner asyncSendEnable
authConfigPath authenticationEnabled authenticationMetadataProvider authenticationProvider
authenticationStrategy authenticationWhitelist authorizationEnabled authorizationMetadataProvider
authorizationProvider authorizationStrategy authorizationWhitelist autoCreateSubscriptionGroup
autoCreateTopicEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen
batchDispatchRequestThreadPoolNums bindAddress bitMapLengthConsumeQueueExt
bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
broadcastOffsetExpireSecond brokerClusterName brokerConfigPath brokerElectionPriority
brokerFastFailureEnable brokerHeartbeatInterval brokerIP1 brokerIP2 brokerId brokerName
brokerNotActiveTimeoutMillis brokerPermission brokerRole brokerTopicEnable cgColdReadThreshold
channelExpiredTimeout channelNotActiveInterval checkCRCOnRecover checkCommitLogOffsetOnRecover
checkSyncStateSetPeriod cleanFileForciblyEnable cleanOfflineBrokerInterval cleanResourceInterval
cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic
clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
clientCloseSocketIfTimeout clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity
clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientRequestThreadPoolNums
clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads clusterName clusterTest clusterTopicEnable coldCtrStrategyEnable
coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
combineCQUseRocksdbForLmq commercialBaseCount commercialBigCount commercialEnable
commercialSizePerMsg commercialTimerCount commercialTransCount commitCommitLogLeastPages
commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
compatibleWithOldNameSrv compressedRegister configBlackList configManagerVersion configName
configStorePath connectTimeoutMillis consumerFallbehindThreshold consumerManageThreadPoolNums
consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr
controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerHeartBeatTimeoutMills
controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums
controllerType correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dLegerGroup
dLegerPeers dLegerSelfId dataReadAheadEnable debugLockEnable defaultMessageRequestMode
defaultPopShareQueueNum defaultQueryMaxNum defaultThreadPoolNums defaultThreadPoolQueueCapacity
defaultTopicQueueNums delayOffsetUpdateVersionStep deleteCommitLogFilesInterval
deleteConsumeQueueFilesInterval deleteFileBatchMax deleteTopicWithBrokerRegistration deleteWhen
destroyMapedFileIntervalForcibly disableCallbackExecutor disableConsumeIfConsumerReadSlowly
disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded diskMaxUsedSpaceRatio
diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads
dispatchFromSenderThread duplicationEnable electMasterMaxRetryCount enableAcceleratedRecovery
enableAllTopicList enableAsyncReput enableAutoInSyncReplicas enableBatchPush
enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently enableCalcFilterBitMap
enableCleanExpiredOffset enableCompaction enableConnectionMetrics enableConsumeQueueExt
enableControllerInNamesrv enableControllerMode enableCreateSysGroup enableDLegerCommitLog
enableDetailStat enableElectUncleanMaster enableFastChannelEventProcess enableLagAndDlqMetrics
enableLiteEventMode enableLitePopLog enableLmq enableLmqQuota enableLmqStats
enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enableMixedMessageType
enableMultiDispatch enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver
enableScheduleMessageStats enableShutdownGracefully enableSingleTopicRegister
enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata enableSplitRegistration
enableStatsMetrics enableTopicList enableTransactionMetrics enabledAppendPropCRC
endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
fileReservedTime filterDataCleanTimeSpan filterServerNums filterSupportRetry
flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
flushConsumerOffsetInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC
forwardTimeout globalColdReadThreshold haFlowControlEnable haHousekeepingInterval haListenPort
haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval
haSlaveFallbehindMax haTransferBatchSize heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
highSpeedMode inBrokerContainer inSyncReplicas indexFileReadEnable indexFileWriteEnable
indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
innerClientAuthenticationCredentials isolateLogEnable iteratorWhenUseRocksdbConsumeQueue
jraftConfig kvConfigPath listenPort liteEventCheckInterval liteEventFullDispatchDelayTime
liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable
liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK litePullMessageEnable
litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
liteSubscriptionCheckTimeoutMills liteTtlCheckInterval loadBalancePollNameServerInterval
loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
logicalDiskSpaceCleanForciblyThreshold longPollingEnable mappedFileSize mappedFileSizeCommitLog
mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog
mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
maxBatchDeleteFilesNum maxChecksumRange maxClientEventCount maxConsumeQueueScan maxDelayTime
maxErrorRateOfBloomFilter maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum
maxIndexNum maxLiteSubscriptionCount maxLmqConsumeQueueNum maxMessageFilterNumForNotification
maxMessageSize maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds
maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays maxSlaveResendLength maxStatsIdleTimeInMinutes
maxTopicLength maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
messageDelayLevel messageIndexEnable messageIndexSafe messageStorePlugIn
metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsExporterType
metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
migrateAuthFromV1Enabled minInSyncReplicas minLiteTTl msgTraceTopicName namesrvAddr
needWaitForService notifyBrokerRoleChanged notifyConsumerIdsChangedEnable notifyMinBrokerIdChanged
offsetCheckInSlave orderMessageEnable osPageCacheBusyTimeOutMills
persistConsumerOffsetIncrementally popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
popFromRetryProbabilityForPriority popInflightMessageThreshold popLongPollingForceNotifyInterval
popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
popReviveSkipIfGroupAbsent preferredLeaderId printChannelGroups printChannelGroupsMinNum
priorityOrderAsc processReadEvent processReplyMessageThreadPoolNums productEnvName
pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths readUnCommitted
realTimeNotifyConsumerChange realTimePersistRocksDBConfig recallMessageEnable
recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval
regionId registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable
rejectTransactionMessage replicasPerDiskPartition replyThreadPoolQueueCapacity
retrieveMessageFromPopRetryTopicV1 returnOrderTopicConfigToBroker reviveAckWaitMs reviveInterval
reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome rocksdbCQDoubleWriteEnable
rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
sampleCountThreshold sampleSteps scanAvailableNameSrv scanInactiveMasterInterval
scanNotActiveBrokerInterval scheduleAsyncDeliverMaxPendingLimit
scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable sendHeartbeatTimeoutMillis
sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable
serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
serverWorkerThreads sharedByteBufferNum shortPollingTimeMills shutdownWaitTimeSeconds
skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout socksProxyConfig
spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
startAcceptSendRequestTimeStamp statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond
statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
statefulAuthorizationCacheMaxNum storePathBrokerIdentity storePathCommitLog
storePathDLedgerCommitLog storePathEpochFile storePathRootDir storeReplyMessageEnable storeType
subscriptionExpiredTimeout supportActingMaster syncBrokerMemberGroupPeriod
syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile
syncMasterFlushOffsetWhenStartup timerColdDataCheckIntervalMs timerCongestNumEachSlot
timerEnableCheckMetrics timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
timerReputServiceQueueCapacity timerRocksDBEnable timerRocksDBPrecisionMs
timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRollWindowSlot timerSkipUnknownError
timerStopEnqueue timerWheelEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
topicQueueLockNum totalReplicas traceOn traceTopicEnable transRocksDBEnable
transWriteOriginTransHalfEnable transactionCheckInterval transactionCheckMax
transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval transactionOpBatchInterval
transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap transientStorePoolEnable
transientStorePoolSize travelCqFileNumWhenGetMessage unRegisterBrokerQueueCapacity
updateNameServerAddrPeriod useABSLock useEpollNativeSelector useMessageFilterForNotification
usePIDColdCtrStrategy useReentrantLockWhenPutMessage useSeparateRetryQueue
useSeparateStorePathForRocksdbCQ useServerSideResetOffset useSingleRocksDBForAllConfigs
useStaticSubscription useTLS userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
validateSystemTopicWhenUpdateTopic waitSecondsForService waitTimeMillsInAckQueue
waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeBufferHighWaterMark
writeBufferLowWaterMark writeWithoutMmap
"""
ROCKETMQ_KEYS: Final = frozenset(_NAMES.split())


def check_unknown_keys(
    unknown: Mapping[str, str], known_keys: Iterable[str], where: str
) -> tuple[str, ...]:
    """Return the names of the keys to warn about, sorted.

    ``unknown`` has the entries that are not in ``known_keys``; errors name their origin ``where``.

    :raises BadInput: if a key must not be ignored.
    """
    names = {*ROCKETMQ_KEYS, *known_keys}
    passed_over = []
    for name in sorted(unknown):
        reason = _refusal(name, unknown[name].strip())
        if reason is not None:
            raise BadInput(f"{where}: {name[:_MAX_SHOWN]}={unknown[name][:20]}: {reason}")
        if name not in ROCKETMQ_KEYS:
            for meant in nearest(name, names, similarity=_MIN_SIMILARITY):
                shown = name[:_MAX_SHOWN]
                raise BadInput(f"{where}: {shown} is not a key of RocketMQ; did you mean {meant}?")
        passed_over.append(name)
    return tuple(passed_over)


def _refusal(name: str, value: str) -> str | None:
    """Return why a key must not be ignored, or None if it can be."""
    if name.startswith(_TLS_PREFIX):
        return OTHER_TLS if value else None
    return _REFUSED_WHEN_TRUE.get(name) if value.lower() == "true" else None
