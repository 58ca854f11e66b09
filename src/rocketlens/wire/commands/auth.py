"""Access control: the accounts of RocketMQ 4, users and policies of RocketMQ 5.

The bodies are in :mod:`rocketlens.wire.bodies.auth`: requests that write, and answers, have a
UserInfo or an AclInfo, or an array of them. If nothing was found, the answer is success and no
body.
"""

from typing import Final

from rocketlens.wire.codes import RequestCode as Code
from rocketlens.wire.declare import Command, NoFields, WireStruct


class CreateAccessConfigRequest(WireStruct, java="CreateAccessConfigRequestHeader"):
    """Creates an account, or changes the given members. Lists are separated by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequest(WireStruct, java="DeleteAccessConfigRequestHeader"):
    """Deletes an account."""

    access_key: str


class UpdateGlobalWhiteAddrsRequest(WireStruct, java="UpdateGlobalWhiteAddrsConfigRequestHeader"):
    """Replaces the addresses that need no account, in one of the files."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponse(WireStruct, java="GetBrokerAclConfigResponseHeader"):
    """The DataVersion of the default file, and of each file by its path, as JSON."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class UserRequest(
    WireStruct,
    java=(
        "CreateUserRequestHeader",
        "UpdateUserRequestHeader",
        "DeleteUserRequestHeader",
        "GetUserRequestHeader",
    ),
):
    """Creates, changes, deletes or returns a user; the body has the members to write."""

    username: str | None = None


class ListUsersRequest(WireStruct, java="ListUsersRequestHeader"):
    """Asks for the users whose names contain a text."""

    filter: str | None = None


class AclRequest(
    WireStruct, java=("CreateAclRequestHeader", "UpdateAclRequestHeader", "GetAclRequestHeader")
):
    """Adds policies to a subject, replaces them, or returns them."""

    subject: str | None = None


class DeleteAclRequest(WireStruct, java="DeleteAclRequestHeader"):
    """Deletes the policies of a subject for one resource or for all."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequest(WireStruct, java="ListAclsRequestHeader"):
    """Asks for the policies of subjects and resources whose names contain a text."""

    subject_filter: str | None = None
    resource_filter: str | None = None


UPDATE_AND_CREATE_ACL_CONFIG: Final = Command(
    Code.UPDATE_AND_CREATE_ACL_CONFIG, CreateAccessConfigRequest
)
DELETE_ACL_CONFIG: Final = Command(Code.DELETE_ACL_CONFIG, DeleteAccessConfigRequest)
GET_BROKER_CLUSTER_ACL_INFO: Final = Command(
    Code.GET_BROKER_CLUSTER_ACL_INFO, NoFields, GetBrokerAclConfigResponse
)
UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Final = Command(
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, UpdateGlobalWhiteAddrsRequest
)
GET_BROKER_CLUSTER_ACL_CONFIG: Final = Command(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
AUTH_CREATE_USER: Final = Command(Code.AUTH_CREATE_USER, UserRequest)
AUTH_UPDATE_USER: Final = Command(Code.AUTH_UPDATE_USER, UserRequest)
AUTH_DELETE_USER: Final = Command(Code.AUTH_DELETE_USER, UserRequest)
AUTH_GET_USER: Final = Command(Code.AUTH_GET_USER, UserRequest)
AUTH_LIST_USER: Final = Command(Code.AUTH_LIST_USER, ListUsersRequest)
AUTH_CREATE_ACL: Final = Command(Code.AUTH_CREATE_ACL, AclRequest)
AUTH_UPDATE_ACL: Final = Command(Code.AUTH_UPDATE_ACL, AclRequest)
AUTH_DELETE_ACL: Final = Command(Code.AUTH_DELETE_ACL, DeleteAclRequest)
AUTH_GET_ACL: Final = Command(Code.AUTH_GET_ACL, AclRequest)
AUTH_LIST_ACL: Final = Command(Code.AUTH_LIST_ACL, ListAclsRequest)
