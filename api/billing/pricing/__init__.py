"""What a month of usage costs: pure, integers only, no clock, no database. Read `priced_month.py` first."""
