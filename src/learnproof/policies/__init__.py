"""Who acts: networks, action heads, normalisation, and the Actor that joins them."""
