"""What this machine is (`detect`), what suits it (`policy`), and the few calls that differ between devices (`backend`)."""
