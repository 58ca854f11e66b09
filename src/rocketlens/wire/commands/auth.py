"""Access control: the accounts of RocketMQ 4 (50 to 54), users and policies of 5 (3001 to 3010).

The bodies are in :mod:`rocketlens.wire.bodies.auth`: those of 3001 and 3002 are a UserInfo, those
of 3006 and 3007 an AclInfo; answered with one of these, or an array of them, are 3004, 3005, 3009
and 3010. What was not found is answered with success and no body.
"""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, text


@declare("CreateAccessConfigRequestHeader")
class CreateAccessConfigRequest:
    """Make an account, or change the members that are given. Lists have commas between them."""

    access_key: str = text("accessKey")
    secret_key: str | None = text("secretKey", default=None)
    white_remote_address: str | None = text("whiteRemoteAddress", default=None)
    admin: bool = boolean("admin", default=False)
    default_topic_perm: str | None = text("defaultTopicPerm", default=None)
    default_group_perm: str | None = text("defaultGroupPerm", default=None)
    topic_perms: str | None = text("topicPerms", default=None)
    group_perms: str | None = text("groupPerms", default=None)


@declare("DeleteAccessConfigRequestHeader")
class DeleteAccessConfigRequest:
    """Remove an account."""

    access_key: str = text("accessKey")


@declare("UpdateGlobalWhiteAddrsConfigRequestHeader")
class UpdateGlobalWhiteAddrsRequest:
    """Replace the addresses that need no account, in one of the files."""

    global_white_addrs: str = text("globalWhiteAddrs")
    acl_file_full_path: str | None = text("aclFileFullPath", default=None)


@declare("GetBrokerAclConfigResponseHeader")
class GetBrokerAclConfigResponse:
    """The DataVersion of the default file, and of each file by its path, as JSON."""

    version: str = text("version")
    all_acl_file_version: str | None = text("allAclFileVersion", default=None)
    broker_name: str = text("brokerName")
    broker_addr: str = text("brokerAddr")
    cluster_name: str = text("clusterName")


@declare(
    "CreateUserRequestHeader",
    "UpdateUserRequestHeader",
    "DeleteUserRequestHeader",
    "GetUserRequestHeader",
)
class UserRequest:
    """Make, change, remove or return a user; the body has the members to write."""

    username: str | None = text("username", default=None, since=V5_0_0)


@declare("ListUsersRequestHeader")
class ListUsersRequest:
    """Ask for the users whose names contain a text."""

    filter: str | None = text("filter", default=None, since=V5_0_0)


@declare("CreateAclRequestHeader", "UpdateAclRequestHeader", "GetAclRequestHeader")
class AclRequest:
    """Add policies to a subject, replace them, or return them."""

    subject: str | None = text("subject", default=None, since=V5_0_0)


@declare("DeleteAclRequestHeader")
class DeleteAclRequest:
    """Remove what a subject may do, with one resource or with all."""

    subject: str | None = text("subject", default=None, since=V5_0_0)
    policy_type: str | None = text("policyType", default=None, since=V5_0_0)
    resource: str | None = text("resource", default=None, since=V5_0_0)


@declare("ListAclsRequestHeader")
class ListAclsRequest:
    """Ask for policies; subjects, and resources, whose names contain a text."""

    subject_filter: str | None = text("subjectFilter", default=None, since=V5_0_0)
    resource_filter: str | None = text("resourceFilter", default=None, since=V5_0_0)


UPDATE_AND_CREATE_ACL_CONFIG: Final = Command(
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, CreateAccessConfigRequest, NoFields
)
DELETE_ACL_CONFIG: Final = Command(
    RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequest, NoFields
)
GET_BROKER_CLUSTER_ACL_INFO: Final = Command(
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO, NoFields, GetBrokerAclConfigResponse
)
UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Final = Command(
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, UpdateGlobalWhiteAddrsRequest, NoFields
)
GET_BROKER_CLUSTER_ACL_CONFIG: Final = Command(
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, NoFields, NoFields
)
AUTH_CREATE_USER: Final = Command(RequestCode.AUTH_CREATE_USER, UserRequest, NoFields, since=V5_0_0)
AUTH_UPDATE_USER: Final = Command(RequestCode.AUTH_UPDATE_USER, UserRequest, NoFields, since=V5_0_0)
AUTH_DELETE_USER: Final = Command(RequestCode.AUTH_DELETE_USER, UserRequest, NoFields, since=V5_0_0)
AUTH_GET_USER: Final = Command(RequestCode.AUTH_GET_USER, UserRequest, NoFields, since=V5_0_0)
AUTH_LIST_USER: Final = Command(
    RequestCode.AUTH_LIST_USER, ListUsersRequest, NoFields, since=V5_0_0
)
AUTH_CREATE_ACL: Final = Command(RequestCode.AUTH_CREATE_ACL, AclRequest, NoFields, since=V5_0_0)
AUTH_UPDATE_ACL: Final = Command(RequestCode.AUTH_UPDATE_ACL, AclRequest, NoFields, since=V5_0_0)
AUTH_DELETE_ACL: Final = Command(
    RequestCode.AUTH_DELETE_ACL, DeleteAclRequest, NoFields, since=V5_0_0
)
AUTH_GET_ACL: Final = Command(RequestCode.AUTH_GET_ACL, AclRequest, NoFields, since=V5_0_0)
AUTH_LIST_ACL: Final = Command(RequestCode.AUTH_LIST_ACL, ListAclsRequest, NoFields, since=V5_0_0)
