"""Bundles of vision-language models: an image encoder, an embedding and a decoder."""
