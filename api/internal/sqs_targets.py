"""What an SQS management action is about, and whether its caller may do it."""

from __future__ import annotations

from collections.abc import Mapping

from api.iam.authorisation import Targets, require
from api.iam.targets import destinations_of, with_attributes
from api.queues import attributes as rules
from api.queues import moves
from api.queues.attributes import QueueProblem
from api.queues.models import MessageMoveTask
from api.settings.environment import environment
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS, SQS_OPERATIONS

# Of a send to a queue that does not exist; no action of SQS.
_AUTO_CREATE = "AutoCreateQueue"


def authorise(principal: Principal, action: str, params: Mapping[str, object]) -> None:
    """Raises AccessDenied; QueueProblem for parameters that name nothing."""
    demands = MANAGEMENT_OPERATIONS["queues.create_on_send"] if action == _AUTO_CREATE else SQS_OPERATIONS[action]
    targets = _targets_of(principal.account_id, action, params)
    if targets is not None:
        require(principal, demands, targets)


def queue_name_of(account_id: str, params: Mapping[str, object]) -> str:
    """`QueueName`, or the end of `QueueUrl`, whose account must be the caller's: these actions never cross accounts."""
    name = params.get("QueueName")
    if isinstance(name, str) and name:
        return name
    url = params.get("QueueUrl")
    if not isinstance(url, str) or not url:
        raise QueueProblem("MissingRequiredParameterException", "The request must contain the parameter QueueUrl.")
    owner, _, name = url.rstrip("/").rpartition("/")
    if owner.rpartition("/")[2] != account_id or not name:
        raise QueueProblem("QueueDoesNotExist", "The specified queue does not exist.")
    return name


def queue_owner_of(account_id: str, params: Mapping[str, object]) -> str:
    """The account of the queue of an action that the policy of a queue can open to other accounts; a front end names
    it. Else the caller's."""
    owner_id = params.get("QueueOwner")
    return owner_id if isinstance(owner_id, str) and owner_id else account_id


def _targets_of(account_id: str, action: str, params: Mapping[str, object]) -> Targets | None:
    """None: there is no such queue or task of the account, which is for the action to say."""
    if action == "ListQueues":
        return Targets()
    if action in ("CreateQueue", _AUTO_CREATE):
        tags, name = rules.check_tags(params.get("tags")), rules.check_name(params.get("QueueName"))
        targets = Targets(name, tags=tags, tag_keys=tuple(tags))
        return with_attributes(targets, account_id, params.get("Attributes"))
    if action == "CancelMessageMoveTask":
        return _of_task(account_id, params.get("TaskHandle"))
    if action in ("StartMessageMoveTask", "ListMessageMoveTasks"):
        return _of_move(account_id, params.get("SourceArn"), params.get("DestinationArn"))
    name = queue_name_of(account_id, params)
    if action == "ListDeadLetterSourceQueues":
        return Targets(name, owner_id=queue_owner_of(account_id, params))
    if action == "SetQueueAttributes":
        return with_attributes(Targets(name), account_id, params.get("Attributes"))
    if action == "TagQueue":
        tags = rules.check_tags(params.get("Tags"))
        return Targets(name, tags=tags, tag_keys=tuple(tags))
    if action == "UntagQueue":
        return Targets(name, tag_keys=tuple(rules.check_tag_keys(params.get("TagKeys"))))
    return Targets(name)


def _of_move(account_id: str, source_arn: object, destination_arn: object) -> Targets | None:
    source = _own_name(account_id, source_arn)
    if source is None:
        return None
    if destination_arn in (None, ""):
        return Targets(source, destinations_of(account_id, source, None))
    destination = _own_name(account_id, destination_arn)
    return None if destination is None else Targets(source, (destination,))


def _of_task(account_id: str, handle: object) -> Targets | None:
    task = MessageMoveTask.objects.filter(account_id=account_id, uuid=moves.task_of_handle(account_id, handle)).first()
    source = None if task is None else _own_name(account_id, task.source_arn)
    return None if source is None else Targets(source)


def _own_name(account_id: str, arn: object) -> str | None:
    named = rules.parse_arn(arn)
    if named is None or (named.region, named.account_id) != (environment().region, account_id):
        return None
    return named.name
