"""Stage `lab`: raw captures of a lab object, and the truth that only `evaluate` reads."""
