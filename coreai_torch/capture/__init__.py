"""Exported programs before they are lowered: torch on both sides, never coreai."""
