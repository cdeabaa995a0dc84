"""Lines of queues are guarded by statement, and not one by one: a draft writes hundreds of thousands of them at once."""

from django.db import migrations

_REFUSE = """
CREATE FUNCTION billing_refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM invoice i WHERE i.state = 'issued' AND i.id IN ({rows})) THEN
        RAISE EXCEPTION 'the invoice of % is final', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER final_queue_lines_{name} AFTER {event} ON invoice_queue_line
    REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_{name}();
"""
_NEW, _OLD = "SELECT invoice_id FROM new_rows", "SELECT invoice_id FROM old_rows"
_NEW_ROWS, _OLD_ROWS = "NEW TABLE AS new_rows", "OLD TABLE AS old_rows"
_EVENTS = (
    ("inserted", "INSERT", _NEW, _NEW_ROWS),
    ("updated", "UPDATE", f"{_NEW} UNION ALL {_OLD}", f"{_NEW_ROWS} {_OLD_ROWS}"),
    ("deleted", "DELETE", _OLD, _OLD_ROWS),
)
MAKE = "DROP TRIGGER final_queue_line ON invoice_queue_line;" + "".join(
    _REFUSE.format(name=name, event=event, rows=rows, tables=tables) for name, event, rows, tables in _EVENTS
)
UNMAKE = (
    "".join(
        f"DROP TRIGGER final_queue_lines_{name} ON invoice_queue_line; DROP FUNCTION billing_refuse_{name}();"
        for name, *_ in _EVENTS
    )
    + """
CREATE TRIGGER final_queue_line BEFORE INSERT OR UPDATE OR DELETE ON invoice_queue_line
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_lines();
"""
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0015_mails_that_are_not_sent")]

    operations = [migrations.RunSQL(MAKE, UNMAKE)]
