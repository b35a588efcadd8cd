"""The use cases: probe, chat, settle. They see ports, never an adapter."""
