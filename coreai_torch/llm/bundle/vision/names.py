"""Names of the ports of a vision-language bundle, and the token that ends a turn."""

STATES = ("k_cache", "v_cache")
EMBEDS, POSITIONS = "inputs_embeds", "position_ids"
TOKENS, EMBEDDINGS = "input_ids", "embeddings"
PIXELS, FEATURES = "pixel_values", "image_features"
ENGINE_END = "<|im_end|>"  # the engine stops here and at the tokenizer's end token only
