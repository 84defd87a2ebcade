"""Bytes <-> messages: the Kafka wire protocol.  Decides; opens no socket, reads no clock."""
