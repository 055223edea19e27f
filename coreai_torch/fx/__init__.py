"""Read and change FX graphs and the exported programs around them."""
