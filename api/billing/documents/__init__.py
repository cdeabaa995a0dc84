"""What customers get of an invoice: one content, written as JSON, CSV and PDF."""
