"""Policies of an account, and who has them. Written by `actions/` only."""

from __future__ import annotations

from django.db import models

from api.accounts.models import AccessKey, Account
from api.iam import limits
from api.people.models import AccountMembership


class KeyAccess(models.Model):
    """The key may do what its policies allow: `policy` is its own ("" = it has none), others are attached. A key
    without this row may do everything in its account."""

    key = models.OneToOneField(AccessKey, on_delete=models.CASCADE, primary_key=True, related_name="access")
    policy = models.TextField(default="")
    tags = models.JSONField(default=dict)

    class Meta:
        db_table = "iam_key_access"

    def __str__(self) -> str:
        return str(self.pk)


class Policy(models.Model):
    """A named identity policy of an account. `text` is JSON without white space."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="policies", db_index=False)
    name = models.CharField(max_length=limits.POLICY_NAME_CHARACTERS_MAX, db_collation="C")
    text = models.TextField()
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()

    class Meta:
        db_table = "iam_policy"
        constraints = (models.UniqueConstraint(fields=["account", "name"], name="iam_policy_name"),)

    def __str__(self) -> str:
        return f"{self.account_id}/{self.name}"


class PeopleGroup(models.Model):
    """Members of an account who have policies together."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="people_groups", db_index=False)
    name = models.CharField(max_length=limits.GROUP_NAME_CHARACTERS_MAX, db_collation="C")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "iam_group"
        constraints = (models.UniqueConstraint(fields=["account", "name"], name="iam_group_name"),)

    def __str__(self) -> str:
        return f"{self.account_id}/{self.name}"


class GroupMember(models.Model):
    """Goes with the membership: who leaves the account leaves its groups."""

    group = models.ForeignKey(PeopleGroup, on_delete=models.CASCADE, related_name="members", db_index=False)
    member = models.ForeignKey(AccountMembership, on_delete=models.CASCADE, related_name="groups")

    class Meta:
        db_table = "iam_group_member"
        constraints = (models.UniqueConstraint(fields=["group", "member"], name="iam_group_member_once"),)

    def __str__(self) -> str:
        return f"{self.group_id}/{self.member_id}"


class PolicyAttachment(models.Model):
    """One holder has one policy. An attached policy cannot be deleted."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="attachments")
    key = models.ForeignKey(KeyAccess, on_delete=models.CASCADE, null=True, related_name="attachments")
    member = models.ForeignKey(AccountMembership, on_delete=models.CASCADE, null=True, related_name="attachments")
    group = models.ForeignKey(PeopleGroup, on_delete=models.CASCADE, null=True, related_name="attachments")

    class Meta:
        db_table = "iam_policy_attachment"
        constraints = (
            models.CheckConstraint(
                condition=(
                    models.Q(key__isnull=False, member__isnull=True, group__isnull=True)
                    | models.Q(key__isnull=True, member__isnull=False, group__isnull=True)
                    | models.Q(key__isnull=True, member__isnull=True, group__isnull=False)
                ),
                name="iam_attachment_of_one",
            ),
            models.UniqueConstraint(fields=["policy", "key"], name="iam_attachment_key"),
            models.UniqueConstraint(fields=["policy", "member"], name="iam_attachment_member"),
            models.UniqueConstraint(fields=["policy", "group"], name="iam_attachment_group"),
        )

    def __str__(self) -> str:
        return f"{self.policy_id} {self.key_id or self.member_id or self.group_id}"
