"""An account may be throttled beside its stop: after an operator has lifted the stop, the throttle still holds."""

from django.db import migrations, models
from django.db.models import Q

_THROTTLES_BESIDE = """
DELETE FROM spending_effect t USING spending_effect s
 WHERE t.queue_uuid IS NULL AND s.queue_uuid IS NULL AND t.account_id = s.account_id
   AND t.effect = 'throttle' AND s.effect = 'stop'
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0017_hours_within_days")]

    operations = [
        migrations.RemoveConstraint("spendingeffect", "spending_effect_once"),
        migrations.AddConstraint(
            "spendingeffect",
            models.UniqueConstraint(
                fields=["account", "queue_uuid"], condition=Q(queue_uuid__isnull=False), name="spending_effect_of_queue"
            ),
        ),
        migrations.AddConstraint(
            "spendingeffect",
            models.UniqueConstraint(
                fields=["account", "effect"], condition=Q(queue_uuid=None), name="spending_effect_of_account"
            ),
        ),
        # Backwards, before the old constraint is there again.
        migrations.RunSQL(migrations.RunSQL.noop, _THROTTLES_BESIDE),
    ]
