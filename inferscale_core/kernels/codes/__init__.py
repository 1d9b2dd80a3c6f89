"""Numbers of few bits, as both kernels read and write them."""
