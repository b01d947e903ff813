"""Speed and memory of training and decoding, measured beside other engines in one run."""
