"""REST: the policy simulator."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.iam import limits
from api.iam.simulation import simulate_requests
from api.internal.rest import caller
from api.operation_view import OperationView, Repetition
from api.people.strict import StrictBooleanField, StrictCharField, StrictSerializer

_ARN_CHARACTERS_MAX = 512
_TEXT_CHARACTERS_MAX = 512


class _Tags(serializers.DictField):
    child = StrictCharField(allow_blank=True, trim_whitespace=False, max_length=limits.TAG_VALUE_CHARACTERS_MAX)


class SimulatedContextSerializer(StrictSerializer):
    """What conditions look at. `resource_tags` in the place of those of the queue; `principal_tags` with `policies`."""

    source_ip = serializers.IPAddressField(required=False)
    secure_transport = StrictBooleanField(required=False)
    time = serializers.DateTimeField(required=False)
    user_agent = StrictCharField(required=False, allow_blank=True, max_length=_TEXT_CHARACTERS_MAX)
    referer = StrictCharField(required=False, allow_blank=True, max_length=_TEXT_CHARACTERS_MAX)
    principal_tags = _Tags(required=False)
    resource_tags = _Tags(required=False)
    request_tags = _Tags(required=False)
    tag_keys = serializers.ListField(child=StrictCharField(max_length=128), required=False, max_length=50)


class SimulationRequestSerializer(StrictSerializer):
    """Whose policies are weighed: those of the key, of the person with its role in the account, or those that are
    given; none of them: the account's own right."""

    access_key_id = StrictCharField(required=False, allow_null=True, default=None, max_length=64)
    person_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    policies = serializers.ListField(
        child=serializers.DictField(), required=False, allow_null=True, default=None, max_length=20
    )
    queue_policy = serializers.DictField(
        required=False, allow_null=True, default=None, help_text="In the place of the one that the queue has."
    )
    actions = serializers.ListField(
        child=StrictCharField(max_length=128), min_length=1, max_length=limits.SIMULATED_ACTIONS_MAX
    )
    resources = serializers.ListField(
        child=StrictCharField(max_length=_ARN_CHARACTERS_MAX), min_length=1, max_length=limits.SIMULATED_RESOURCES_MAX
    )
    request_context = SimulatedContextSerializer(required=False, default=dict)

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if attrs["person_id"] is not None and (attrs["access_key_id"] is not None or attrs["policies"] is not None):
            raise serializers.ValidationError({"person_id": "stands alone"})
        return attrs


class StatementSerializer(serializers.Serializer):
    policy = serializers.CharField(help_text="`key`: the key's own; `queue`: the queue's; otherwise a policy's name.")
    ordinal = serializers.IntegerField(help_text="Counts from 0.")
    sid = serializers.CharField(allow_null=True)


class OutcomeSerializer(StatementSerializer):
    effect = serializers.ChoiceField(choices=["Allow", "Deny"])
    mismatch = serializers.CharField(allow_null=True, help_text="The first part that does not match; null: all do.")


class ResultSerializer(serializers.Serializer):
    action = serializers.CharField()
    resource = serializers.CharField()
    decision = serializers.ChoiceField(choices=["allowed", "explicit_deny", "implicit_deny"])
    reason = serializers.CharField()
    statement = StatementSerializer(allow_null=True, help_text="The one that decided.")
    statements = OutcomeSerializer(many=True)


class SimulationSerializer(serializers.Serializer):
    results = ResultSerializer(many=True)


class SimulateView(OperationView):
    repetition = Repetition.READS

    @extend_schema(
        operation_id="policies.simulate", request=SimulationRequestSerializer, responses=SimulationSerializer
    )
    def post(self, request: Request) -> Response:
        """What would be decided, and by which statement. Nothing is done and nothing stored."""
        asked = SimulationRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        return Response({"results": simulate_requests(caller(request).account_id, asked.validated_data)})
