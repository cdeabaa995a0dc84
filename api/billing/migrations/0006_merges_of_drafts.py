from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_rounds")]

    operations = [
        migrations.AddField(model_name="invoice", name="merges", field=models.BigIntegerField(null=True)),
    ]
