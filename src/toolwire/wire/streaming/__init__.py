"""Shared base of the stream decoders and encoders."""
