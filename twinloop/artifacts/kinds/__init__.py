"""Every artifact kind, declared once."""
