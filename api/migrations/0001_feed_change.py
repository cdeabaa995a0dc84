from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="FeedChange",
            fields=[
                ("version", models.BigIntegerField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=16)),
                ("key", models.CharField(max_length=128)),
                ("transaction", models.BigIntegerField(db_index=True)),
            ],
            options={
                "db_table": "feed_change",
            },
        ),
    ]
