"""What must not change is kept by the database: versions in effect, issued invoices and their lines, credit notes."""

from django.db import migrations

MAKE = """
CREATE FUNCTION billing_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is final', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER final_version BEFORE UPDATE OR DELETE ON price_plan_version
    FOR EACH ROW WHEN (OLD.effective_from <= now()) EXECUTE FUNCTION billing_refuse();
CREATE TRIGGER final_invoice BEFORE UPDATE OR DELETE ON invoice
    FOR EACH ROW WHEN (OLD.state = 'issued') EXECUTE FUNCTION billing_refuse();
CREATE TRIGGER final_note BEFORE UPDATE OR DELETE ON credit_note
    FOR EACH ROW EXECUTE FUNCTION billing_refuse();

CREATE FUNCTION billing_refuse_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM invoice i WHERE i.state = 'issued'
                AND i.id IN (CASE WHEN TG_OP <> 'INSERT' THEN OLD.invoice_id END,
                             CASE WHEN TG_OP <> 'DELETE' THEN NEW.invoice_id END)) THEN
        RAISE EXCEPTION 'the invoice of % is final', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER final_line BEFORE INSERT OR UPDATE OR DELETE ON invoice_line
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_lines();
CREATE TRIGGER final_queue_line BEFORE INSERT OR UPDATE OR DELETE ON invoice_queue_line
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_lines();
"""
UNMAKE = """
DROP TRIGGER final_version ON price_plan_version;
DROP TRIGGER final_invoice ON invoice;
DROP TRIGGER final_note ON credit_note;
DROP TRIGGER final_line ON invoice_line;
DROP TRIGGER final_queue_line ON invoice_queue_line;
DROP FUNCTION billing_refuse();
DROP FUNCTION billing_refuse_lines();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]

    operations = [migrations.RunSQL(MAKE, UNMAKE)]
