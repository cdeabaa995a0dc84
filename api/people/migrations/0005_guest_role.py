from django.db import migrations, models

_ROLES = ("owner", "admin", "developer", "reader", "billing", "guest")
_ROLE = models.CharField(choices=[(role, role) for role in _ROLES], max_length=16)


class Migration(migrations.Migration):
    dependencies = [("people", "0004_passkeys")]

    operations = [
        migrations.AlterField(model_name="accountmembership", name="role", field=_ROLE),
        migrations.AlterField(model_name="invitation", name="role", field=_ROLE),
    ]
