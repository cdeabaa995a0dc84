"""The application may only add to the trail. This function, which belongs to the owner of the schema, lets it remove
what is older than AUDIT_DAYS_MIN, the oldest first, and nothing else. The days are the database's."""

from django.db import migrations

MAKE = """
CREATE FUNCTION audit_remove_old(days integer, entries_max integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE removed bigint;
BEGIN
    IF days IS NULL OR days < 90 THEN
        RAISE EXCEPTION 'audit entries are kept for 90 days at least';
    END IF;
    DELETE FROM public.audit_entry WHERE id IN (
        SELECT id FROM (SELECT id, at FROM public.audit_entry ORDER BY id LIMIT entries_max) oldest
         WHERE at < clock_timestamp() - make_interval(days => days)
    );
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
REVOKE ALL ON FUNCTION audit_remove_old(integer, integer) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0002_refused_calls"),
    ]

    operations = [
        migrations.RunSQL(MAKE, "DROP FUNCTION audit_remove_old(integer, integer)"),
    ]
